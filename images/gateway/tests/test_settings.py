"""Limits and defaults of the gateway's settings."""

from typing import Any

import pytest
from pydantic import ValidationError

from voice_gateway.settings import GatewaySettings

GOOD: dict[str, Any] = {
    "deployment": "d", "fleet": "f", "http_port": 8080, "media_port": 8081, "rtp_port": 5004, "token_key": "k" * 32,
    "token_ttl_s": 60, "authorizer": "none", "media_host": "audio.test", "idle_timeout_s": 30, "drain_timeout_s": 5,
    "reconnect_grace_s": 20, "end_of_turn_ms": 600, "session_max_s": 3600, "caller_sessions": 1,
    "caller_creations_per_s": 1, "max_connections": 1, "allowed_origins": "",
}  # fmt: skip
PORT = ((1, 65535), (0, 65536))
AT_LEAST_ONE = ((1,), (0,))
LIMITS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "http_port": PORT, "media_port": PORT, "rtp_port": PORT, "prometheus_port": PORT,
    "deployment": (("x",), ("",)), "fleet": (("x",), ("",)), "media_host": (("x",), ("",)),
    "token_key": (("k" * 32,), ("k" * 31,)), "token_ttl_s": ((1, 86400), (0, 86401)),
    "idle_timeout_s": ((0.001,), (0,)), "drain_timeout_s": ((0,), (-0.001,)), "end_of_turn_ms": ((0,), (-1,)),
    "reconnect_grace_s": AT_LEAST_ONE, "session_max_s": AT_LEAST_ONE, "caller_sessions": AT_LEAST_ONE,
    "caller_creations_per_s": AT_LEAST_ONE, "max_connections": AT_LEAST_ONE,
    "caller_minutes_per_day": ((0, ""), (-1,)), "traced_share": ((0, 1), (-0.001, 1.001)),
}  # fmt: skip
"""Permitted and rejected values of each setting."""


@pytest.mark.parametrize("name", LIMITS)
def test_a_setting_has_limits(name: str) -> None:
    allowed, refused = LIMITS[name]
    for value in allowed:
        GatewaySettings(**GOOD | {name: value})
    for value in refused:
        with pytest.raises(ValidationError, match=name):
            GatewaySettings(**GOOD | {name: value})


def test_unset_variables_have_defaults() -> None:
    settings = GatewaySettings(**GOOD)
    assert (settings.traced_share, settings.media_tls, settings.forwarded) == (0.01, True, False)
    assert (settings.other_regions, settings.prometheus_port, settings.caller_minutes_per_day) == ((), None, 0)
    assert GatewaySettings(**GOOD | {"caller_minutes_per_day": ""}).caller_minutes_per_day == 0
    assert settings.build_audio_url("s") == "wss://audio.test/v1/sessions/s/audio"
    plain = GatewaySettings(**GOOD | {"media_tls": False})
    assert plain.build_audio_url("s") == "ws://audio.test:8081/v1/sessions/s/audio"


def test_lists_are_separated_by_commas() -> None:
    settings = GatewaySettings(**GOOD | {"allowed_origins": "https://a.test,,https://b.test"})
    assert settings.allowed_origins == ("https://a.test", "https://b.test")


def test_an_address_of_a_cell_may_contain_an_equals_sign() -> None:
    cell = {"api_url": "https://a.test", "cells": "https://a.test=https://a.test/healthz?a=b"}
    assert GatewaySettings(**GOOD | cell).cells == {"https://a.test": "https://a.test/healthz?a=b"}


def test_settings_do_not_change_after_the_start() -> None:
    settings = GatewaySettings(**GOOD)
    with pytest.raises(ValidationError, match="frozen"):
        settings.fleet = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "together", [{"jwt_issuer": "https://i.test"}, {"jwt_audience": "voice"}, {"http_port": 8081, "media_port": 8081}]
)
def test_contradictory_settings_are_rejected(together: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="VOICE_"):
        GatewaySettings(**GOOD | together)
    GatewaySettings(**GOOD | {"jwt_issuer": "https://i.test", "jwt_audience": "voice"})
