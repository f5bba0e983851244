"""The door: which requests come in, and what is served beside the page itself."""
