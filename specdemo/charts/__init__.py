"""The charts of the Run tab, the style of all charts, and all colors."""
