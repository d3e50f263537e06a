"""Decisions as data, sans-I/O: no async, clock, randomness, network or files."""
