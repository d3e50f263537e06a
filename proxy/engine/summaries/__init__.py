"""Summaries: which are wanted, who writes them, and when."""
