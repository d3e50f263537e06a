"""How an API writes a conversation, one folder each."""
