"""One network, run fast. Knows no drafting."""
