"""Write records and their views: text, Markdown, CSV, JSON, JSON Lines and HTML."""
