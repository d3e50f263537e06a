"""The tool cache: a policy's rules for tools, and which of their results are fresh."""
