"""Recording of turns: what is stored of a turn, and how it is written."""
