"""A target and its drafts as a pair: found, fetched, loaded, measured and run."""
