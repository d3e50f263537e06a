"""Extraction of what must not be lost from a text: exact facts, and rules that somebody lays down."""
