"""Unabridged: the client keeps the whole conversation, the model gets the abridged edition."""
