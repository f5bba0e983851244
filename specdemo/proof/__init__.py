"""Is the output really the target's? Audits token by token, and a test of distributions. Knows no page."""
