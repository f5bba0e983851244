"""Pairs that run as replicas on a Ray cluster instead of in the page's process. See README.md."""
