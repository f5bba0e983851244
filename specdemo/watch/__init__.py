"""Runs of model servers in other processes, read from their HTTP streams. See README.md."""
