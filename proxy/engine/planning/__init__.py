"""The plan of a request: the epochs in force, and a new one where it is due."""
