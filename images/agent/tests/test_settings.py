"""Limits and defaults of the agent's settings."""

from typing import Any

import pytest
from pydantic import ValidationError

from voice_agent.settings import AgentSettings

GOOD: dict[str, Any] = {
    "deployment": "d", "fleet": "f", "http_port": 8080, "conversations": 1, "token_key": "k" * 32, "token_ttl_s": 60,
    "idle_timeout_s": 30, "drain_timeout_s": 5, "gateway_url": "http://g.test", "chat_url": "http://c.test/v1",
    "chat_model": "m", "chat_key": "", "speech_url": "http://s.test/v1", "speech_model": "m", "speech_key": "",
    "speech_voice": "v", "speech_rate": 24000, "prompt": "p", "tools_url": "", "tools_key": "", "twilio_account": "",
    "twilio_token": "", "language": "", "answer_tokens": 1, "listening": "transcript",
}  # fmt: skip
PORT = ((1, 65535), (0, 65536))
POSITIVE = ((0.001,), (0,))
TEXT = (("x",), ("",))
LIMITS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "deployment": TEXT, "fleet": TEXT, "chat_model": TEXT, "speech_model": TEXT, "speech_voice": TEXT, "prompt": TEXT,
    "http_port": PORT, "prometheus_port": PORT, "conversations": ((1,), (0,)),
    "token_key": (("k" * 32, "k" * 64), ("k" * 31,)),
    "token_ttl_s": ((1, 86400), (0, 86401)), "idle_timeout_s": POSITIVE, "drain_timeout_s": ((0,), (-0.001,)),
    "speech_rate": ((16000, 48000), (15999, 48001)), "language": (("", "en", "en-US"), ("e", "english", "EN")),
    "answer_tokens": ((1,), (0,)), "traced_share": ((0, 1), (-0.001, 1.001)), "final_within_s": POSITIVE,
    "incomplete_within_s": POSITIVE, "unheard_within_s": POSITIVE, "tools_url": (("", "http://t.test"), ("t.test",)),
}  # fmt: skip
"""Permitted and rejected values of each setting."""


@pytest.mark.parametrize("name", LIMITS)
def test_a_setting_has_limits(name: str) -> None:
    allowed, refused = LIMITS[name]
    for value in allowed:
        AgentSettings(**GOOD | {name: value})
    for value in refused:
        with pytest.raises(ValidationError, match=name):
            AgentSettings(**GOOD | {name: value})


def test_unset_variables_have_defaults() -> None:
    settings = AgentSettings(**GOOD)
    assert (settings.final_within_s, settings.incomplete_within_s, settings.unheard_within_s) == (1.5, 1.2, 5.0)
    assert (settings.traced_share, settings.forwarded, settings.prometheus_port) == (0.01, False, None)
