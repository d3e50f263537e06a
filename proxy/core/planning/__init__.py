"""Planning: what is cut from a conversation, and what replaces it."""
