"""What outlives a session: what is remembered of it, and told to others."""
