"""The gateway: session API, audio in, transcripts out."""
