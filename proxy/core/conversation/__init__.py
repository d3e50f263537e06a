"""A conversation: when a message is the same, what belongs together, and what is kept of it."""
