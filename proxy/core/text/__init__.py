"""What text says, whatever conversation it is in: words, numbers, language."""
