"""All lists of words and wordings of natural language, in six languages: data only, no logic."""
