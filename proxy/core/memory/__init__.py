"""Memory that outlives a session: items and texts, how they age, and what a new session is told."""
