"""Where sessions are kept: in memory, or in Redis and Valkey."""
