"""The Whisper engine: it receives chunks of speech over UDP, and writes transcripts to Valkey."""
