"""The user's directories, reading of files, and JSON records."""
