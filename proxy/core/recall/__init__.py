"""Recall: the tool with which the model reads again what was cut from its view."""
