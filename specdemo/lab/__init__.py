"""The lab: measurements and theory that explain the speedup. It has sweeps, contrasts and batches."""
