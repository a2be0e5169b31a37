"""Reports of records: ``view(record)`` returns a :mod:`document`."""
