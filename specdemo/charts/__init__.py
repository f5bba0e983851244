"""The charts of the stage, the style of all charts, and all colors."""
