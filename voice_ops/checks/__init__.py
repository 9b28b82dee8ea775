"""`voice checks`: every check with its source."""
