"""Runs of servers that are already running elsewhere, seen through what they stream. See README.md."""
