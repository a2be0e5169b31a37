"""Where files of this user are kept, how files are read, and what is kept as JSON."""
