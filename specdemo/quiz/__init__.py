"""The quiz: predictions that a measurement on the loaded models answers."""
