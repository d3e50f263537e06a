"""Wire formats that are independent of dialects."""
