"""Analysis of text without regard to its conversation: words, numbers, language."""
