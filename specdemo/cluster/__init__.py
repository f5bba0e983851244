"""Replicas on a Ray cluster: the pairs are elsewhere, the page only asks them. See README.md."""
