"""How each API writes a conversation, one folder per API."""
