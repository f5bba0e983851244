"""The data of a run (rounds, figures, sentences, files) and the checks of requests."""
