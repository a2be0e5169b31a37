"""Cases, their axes and layouts, and Model cases; without torch."""
