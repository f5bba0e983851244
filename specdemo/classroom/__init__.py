"""A class that watches one run together: rooms, what they show, and what their students answer."""
