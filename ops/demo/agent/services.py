"""The voice path with an agent in front of it, and the engines that answer."""

import json
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from ops.demo.services import LOOPBACK, ROOT, Gateway, Service, ServiceError, VoicePath, free_port

ENGINES = ROOT / ".tools/agent/bin/python"
"""The environment of the demo's engines; ``make demo-agent`` makes it."""
VOICE = "en_US-joe-medium"
PROMPT = "You are a helpful assistant on the telephone. Answer in one short sentence."
TIMEOUT_S = 5


@dataclass
class AgentPath(VoicePath):
    """Store, gateway, VAD stage, Whisper, a small language model, a small voice, and the agent."""

    ports: dict[str, int] = field(default_factory=dict)

    def start_engines(self) -> None:
        """Start the language model and the voice.

        Raises:
            ServiceError: Their environment is not there.
        """
        if not ENGINES.exists():
            raise ServiceError(f"{ENGINES.relative_to(ROOT)} is not there: make demo-agent makes it")
        for name, path in (("chat", "/health"), ("speech", "/")):
            self.ports[name] = free_port()
            script = Path(__file__).with_name(f"{name}.py")
            command = [str(ENGINES), str(script), str(self.ports[name])]
            url = f"http://{LOOPBACK}:{self.ports[name]}{path}"
            self._start(name, command, _NO_TELEMETRY, lambda url=url: said_by(url) is not None)  # type: ignore[misc]

    def start_agent(self, gateway: Gateway, name: str = "agent", **more: str) -> Service:
        """Start an agent; its port is ``ports[name]``. The engines have to be ready."""
        self.ports[name] = free_port()
        rate = said_by(f"http://{LOOPBACK}:{self.ports['speech']}/") or ""
        environment = self._shared(name, "agent") | {
            **_NO_TELEMETRY,
            "VOICE_HTTP_PORT": str(self.ports[name]),
            "VOICE_BIND_ADDRESS": LOOPBACK,
            "VOICE_CONVERSATIONS": "4",
            "VOICE_TOKEN_KEY": self._token_key,
            "VOICE_TOKEN_TTL_S": "600",
            "VOICE_IDLE_TIMEOUT_S": "300",
            "VOICE_DRAIN_TIMEOUT_S": "20",
            "VOICE_GATEWAY_URL": gateway.url,
            "VOICE_CHAT_URL": f"http://{LOOPBACK}:{self.ports['chat']}/v1",
            "VOICE_CHAT_MODEL": "SmolLM2-135M-Instruct",
            "VOICE_CHAT_KEY": "",
            "VOICE_SPEECH_URL": f"http://{LOOPBACK}:{self.ports['speech']}/v1",
            "VOICE_SPEECH_MODEL": "piper",
            "VOICE_SPEECH_KEY": "",
            "VOICE_SPEECH_VOICE": VOICE,
            "VOICE_SPEECH_RATE": rate,
            "VOICE_PROMPT": PROMPT,
            "VOICE_ANSWER_TOKENS": "60",
            "VOICE_TOOLS_URL": "",
            "VOICE_LANGUAGE": "en",
            "VOICE_LISTENING": "transcript",
            "VOICE_FINAL_WITHIN_S": "60",  # a busy machine transcribes late
            "VOICE_UNHEARD_WITHIN_S": "60",
            **more,
        }
        url = f"http://{LOOPBACK}:{self.ports[name]}/healthz"
        return self._start(name, [sys.executable, "-m", "voice_agent"], environment, lambda: said_by(url) is not None)

    def say(self, text: str) -> bytes:
        """Return a text as the demo's voice speaks it: PCM16 at the voice's rate."""
        body = json.dumps({"input": text}).encode()
        request = urllib.request.Request(f"http://{LOOPBACK}:{self.ports['speech']}/v1/audio/speech", body)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  a URL of this machine
            return bytes(answer.read())


_NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}


def said_by(url: str) -> str | None:
    """Return what a service answers; ``None`` while it does not, or is not ready."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310  a URL of this machine
            return bytes(answer.read()).decode()
    except (urllib.error.URLError, OSError):
        return None
