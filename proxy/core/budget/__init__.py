"""How many tokens a request may have: context windows, reserves, and the accuracy of the token count."""
