"""One panel a file: a pure function from a record to a Panel."""
