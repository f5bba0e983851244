"""Runs of model servers that are already running elsewhere, read from their streams. See README.md."""
