"""What a command reports of a record: ``view(record)`` returns a :mod:`document`."""
