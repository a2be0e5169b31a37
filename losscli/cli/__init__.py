"""The command line: a thin file a command; what takes long to import comes after its errors."""
