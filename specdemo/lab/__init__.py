"""Measurements and theory that explain the speedup: sweeps, contrasts and batches."""
