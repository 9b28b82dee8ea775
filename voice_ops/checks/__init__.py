"""`voice checks`: list all checks with their sources."""
