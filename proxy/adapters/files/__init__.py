"""Files: policies that people write, secrets that the first start makes."""
