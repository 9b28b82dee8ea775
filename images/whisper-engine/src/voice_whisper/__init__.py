"""The Whisper engine: chunks of speech come in as UDP, transcripts go out to Valkey."""
