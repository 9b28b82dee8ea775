"""`voice restore`: the state store from one of its snapshots."""
