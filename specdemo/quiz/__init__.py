"""Predict, then see: questions that a measurement answers."""
