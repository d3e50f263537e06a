"""What the admin API reads and changes of a session."""
