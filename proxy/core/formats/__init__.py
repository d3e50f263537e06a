"""Wire formats that belong to no dialect."""
