"""Common code for the Python images: the wire format of chunks, and the state in Valkey."""
