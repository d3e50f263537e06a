"""What a turn leaves behind, and how it comes into the store."""
