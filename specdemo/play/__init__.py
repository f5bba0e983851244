"""Be the draft: the visitor's own guesses, judged by the target."""
