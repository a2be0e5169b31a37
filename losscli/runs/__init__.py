"""A stored run: its records, how they are written and read back, where they are kept."""
