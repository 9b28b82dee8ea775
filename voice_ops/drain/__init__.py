"""`voice drain`: drain a host without losing a call."""
