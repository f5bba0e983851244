"""The stage's charts, the style that all charts share, and every color."""
