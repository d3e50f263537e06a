"""What is cut of a conversation, and what stands in its place."""
