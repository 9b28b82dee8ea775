"""A deployment file: its typed model, how it is read, and where each value stands in it."""
