"""Config files: YAML in, frozen data out."""
