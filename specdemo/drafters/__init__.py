"""Who proposes the tokens."""
