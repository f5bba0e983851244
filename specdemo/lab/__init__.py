"""The lab of measurements that explain the speedup: sweeps, contrasts, batches and theory."""
