"""Memory that outlives a session: written after its turns, and given to other sessions."""
