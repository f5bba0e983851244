"""Pairs of a target and its drafts: fetching, loading, measuring and running them."""
