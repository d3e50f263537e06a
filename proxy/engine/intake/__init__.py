"""A request as it comes in: its head, its body, and the history that the body holds."""
