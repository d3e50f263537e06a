"""Summaries: how they are requested, what they are made from, and how they are checked."""
