"""The only lists of words: what a fact of language is, in six languages, stands here once. Data, no rules."""
