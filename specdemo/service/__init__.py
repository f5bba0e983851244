"""Models shared by many visitors: the queue of jobs, the pairs in memory, and the host's settings."""
