"""Profile one implementation on one case, and determine what bounds it."""
