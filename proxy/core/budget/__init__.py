"""How many tokens a request may have: windows, what is kept free, and what our count is worth."""
