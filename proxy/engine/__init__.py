"""One managed request, from history to record: carries out what the core decides."""
