"""Which session a request belongs to, and what is attached to it."""
