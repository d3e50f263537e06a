"""What outlives a session: its items and texts, how they age, and what a new session is told of them."""
