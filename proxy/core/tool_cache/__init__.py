"""Tools: what a policy says of them, and which of their results are fresh."""
