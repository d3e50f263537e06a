"""Files: policies and settings that people write, and secrets that the first start creates."""
