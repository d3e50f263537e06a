"""One home for each outside library, behind a port."""
