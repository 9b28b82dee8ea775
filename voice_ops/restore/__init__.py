"""`voice restore`: restore the state store from a snapshot."""
