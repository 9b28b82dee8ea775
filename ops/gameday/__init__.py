"""`voice gameday`."""
