"""Whether cuts change answers: comparisons, what was missed, and what is learned of it."""
