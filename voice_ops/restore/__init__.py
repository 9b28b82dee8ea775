"""`voice restore`: restores the state store from a snapshot."""
