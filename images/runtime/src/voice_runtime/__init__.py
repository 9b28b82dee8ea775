"""What the Python images share: the wire format of chunks, and the state in Valkey."""
