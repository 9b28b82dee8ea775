"""The gateway: session API, incoming audio, outgoing transcripts."""
