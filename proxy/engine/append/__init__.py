"""Append mode: turns that are sent without their history."""
