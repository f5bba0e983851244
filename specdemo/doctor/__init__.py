"""Explanations of speedups that were measured in other programs."""
