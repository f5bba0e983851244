"""Models lent to many visitors: the queue, the pairs in memory, the host's settings."""
