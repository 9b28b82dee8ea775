"""Voice path with an agent and the engines that the agent uses."""

import json
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from voice_ops.demo.agent.vllm import ChatServer
from voice_ops.demo.services import LOOPBACK, ROOT, Gateway, Service, ServiceError, VoicePath
from voice_sandbox.loopback import find_free_port

ENGINES_PYTHON = ROOT / ".tools/agent/bin/python"
"""Python interpreter in the demo engines' virtual environment, which ``make demo-agent`` creates."""
VOICE_NAME = "en_US-joe-medium"
SYSTEM_PROMPT = "You are a helpful assistant on the telephone. Answer in one short sentence."
HTTP_TIMEOUT_S = 5


@dataclass
class AgentPath(VoicePath):
    """Store, gateway, VAD stage, Whisper, a small language model, a small voice, and the agent."""

    ports: dict[str, int] = field(default_factory=dict)
    chat: ChatServer | None = None

    def start_engines(self, chat: ChatServer | None = None) -> None:
        """Start the text-to-speech engine, and a language model unless ``chat`` refers to another one.

        Raises:
            ServiceError: The environment of the engines is missing.
        """
        if not ENGINES_PYTHON.exists():
            raise ServiceError(f"{ENGINES_PYTHON.relative_to(ROOT)} is not there: make demo-agent makes it")
        self.chat = chat
        for name, path in (() if chat else (("chat", "/health"),)) + (("speech", "/"),):
            self.ports[name] = find_free_port()
            script = Path(__file__).with_name(f"{name}.py")
            command = [str(ENGINES_PYTHON), str(script), str(self.ports[name])]
            url = f"http://{LOOPBACK}:{self.ports[name]}{path}"
            self._start_service(
                name,
                command,
                _TELEMETRY_OPT_OUT_VARIABLES,
                lambda url=url: fetch_text(url) is not None,  # type: ignore[misc]
            )

    def start_agent(self, gateway: Gateway, name: str = "agent", **variables: str) -> Service:
        """Start an agent on the port ``ports[name]``. The engines must be ready."""
        self.ports[name] = find_free_port()
        rate = fetch_text(f"http://{LOOPBACK}:{self.ports['speech']}/") or ""
        environment = self._build_common_settings(name, "agent") | {
            **_TELEMETRY_OPT_OUT_VARIABLES,
            "VOICE_HTTP_PORT": str(self.ports[name]),
            "VOICE_BIND_ADDRESS": LOOPBACK,
            "VOICE_CONVERSATIONS": "4",
            "VOICE_TOKEN_KEY": self._token_key,
            "VOICE_TOKEN_TTL_S": "600",
            "VOICE_IDLE_TIMEOUT_S": "300",
            "VOICE_DRAIN_TIMEOUT_S": "20",
            "VOICE_GATEWAY_URL": gateway.url,
            "VOICE_CHAT_URL": self.chat.url if self.chat else f"http://{LOOPBACK}:{self.ports['chat']}/v1",
            "VOICE_CHAT_MODEL": self.chat.model if self.chat else "SmolLM2-135M-Instruct",
            "VOICE_CHAT_KEY": "",
            "VOICE_SPEECH_URL": f"http://{LOOPBACK}:{self.ports['speech']}/v1",
            "VOICE_SPEECH_MODEL": "piper",
            "VOICE_SPEECH_KEY": "",
            "VOICE_SPEECH_VOICE": VOICE_NAME,
            "VOICE_SPEECH_RATE": rate,
            "VOICE_PROMPT": SYSTEM_PROMPT,
            "VOICE_ANSWER_TOKENS": "60",
            "VOICE_TOOLS_URL": "",
            "VOICE_TOOLS_KEY": "",
            "VOICE_TWILIO_ACCOUNT": "",
            "VOICE_TWILIO_TOKEN": "",
            "VOICE_LANGUAGE": "en",
            "VOICE_LISTENING": "transcript",
            "VOICE_FINAL_WITHIN_S": "60",  # a busy machine transcribes with a delay
            "VOICE_UNHEARD_WITHIN_S": "60",
            **variables,
        }
        url = f"http://{LOOPBACK}:{self.ports[name]}/healthz"
        return self._start_service(
            name, [sys.executable, "-m", "voice_agent"], environment, lambda: fetch_text(url) is not None
        )

    def synthesize(self, text: str) -> bytes:
        """Synthesize text in the demo's voice, and return PCM16 audio at the voice's sample rate."""
        body = json.dumps({"input": text}).encode()
        request = urllib.request.Request(f"http://{LOOPBACK}:{self.ports['speech']}/v1/audio/speech", body)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  a URL of this machine
            return bytes(answer.read())


_TELEMETRY_OPT_OUT_VARIABLES = {"ORT_DISABLE_TELEMETRY": "1"}


def fetch_text(url: str) -> str | None:
    """Return the response from a service, or ``None`` if the service is not ready."""
    try:
        with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as answer:  # noqa: S310  a URL of this machine
            return bytes(answer.read()).decode()
    except (urllib.error.URLError, OSError):
        return None
