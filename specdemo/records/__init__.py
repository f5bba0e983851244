"""A run as data: its rounds, figures, sentences and files; the checks of requests."""
