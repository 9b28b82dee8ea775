"""`voice status`: compare a running deployment with its file."""
