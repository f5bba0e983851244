"""The page's tabs."""
