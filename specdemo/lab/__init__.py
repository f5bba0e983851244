"""What sets the speedup: measured sweeps, contrasts and batches. Knows no page."""
