"""Whether cuts change answers: comparisons of answers, regret, and what is learned from recordings."""
