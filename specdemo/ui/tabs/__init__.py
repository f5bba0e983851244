"""The page's tabs beside Run and Learn."""
