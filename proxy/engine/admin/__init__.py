"""The operations of the admin API: reading and changing sessions and memories, and statistics."""
