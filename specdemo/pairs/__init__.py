"""A target and its draft together: found, loaded, measured, ready to run."""
