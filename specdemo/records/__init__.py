"""What flows between everything else: a run, its rounds, checks of requests, figures, sentences."""
