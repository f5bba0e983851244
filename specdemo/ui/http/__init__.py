"""The guard in front of the server, and the page's own routes."""
