"""Limits and defaults of the engine's settings."""

from typing import Any

import pytest
from pydantic import ValidationError

from voice_whisper.settings import EngineSettings, Layout, ModelSettings, calculate_threads_per_worker

GOOD: dict[str, Any] = {
    "host": "h", "host_address": "10.0.0.1", "host_kind": "gpu", "chunk_port": 5006, "health_port": 8080,
    "drain_timeout_s": 1,
}  # fmt: skip
PORT = ((1, 65535), (0, 65536))
LIMITS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "host": (("x",), ("",)), "host_address": (("10.0.0.1",), ("10.0.0.256", "name")), "chunk_port": PORT,
    "health_port": PORT, "drain_timeout_s": ((1,), (0,)), "sessions": ((1, 4096), (0, 4097)),
    "encoders": ((1, 64), (0, 65)), "decoders": ((1, 64), (0, 65)),
}  # fmt: skip
"""Accepted and refused values of each setting."""


@pytest.mark.parametrize("name", LIMITS)
def test_a_setting_has_limits(name: str) -> None:
    allowed, refused = LIMITS[name]
    for value in allowed:
        EngineSettings(**GOOD | {name: value})
    for value in refused:
        with pytest.raises(ValidationError, match=name):
            EngineSettings(**GOOD | {name: value})


@pytest.mark.parametrize(("revision", "is_allowed"), [("", True), ("a" * 40, True), ("a" * 39, False), ("main", False)])
def test_a_revision_is_a_commit(revision: str, is_allowed: bool) -> None:
    own: dict[str, Any] = {"model": "m", "cache_dir": "/c", "model_revision": revision}
    if is_allowed:
        assert ModelSettings(**own).backend == "ctranslate2"
        return
    with pytest.raises(ValidationError, match="model_revision"):
        ModelSettings(**own)


@pytest.mark.parametrize(("model", "is_allowed"), [("m", True), ("", False)])
def test_a_model_has_a_name(model: str, is_allowed: bool) -> None:
    own: dict[str, Any] = {"model": model, "cache_dir": "/c"}
    if is_allowed:
        assert ModelSettings(**own).model_revision == ""
        return
    with pytest.raises(ValidationError, match="at least 1 character"):
        ModelSettings(**own)


def test_unset_variables_have_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineSettings(**GOOD)
    assert (settings.sessions, settings.encoders, settings.decoders) == (64, 1, 1)
    assert (settings.engine, settings.layout, settings.health_address) == ("whisper", Layout.DISAGGREGATED, "127.0.0.1")
    monkeypatch.setattr("os.sched_getaffinity", {0: set(range(9))}.__getitem__)  # 0 is the calling process
    assert calculate_threads_per_worker(settings) == 4
    assert calculate_threads_per_worker(EngineSettings(**GOOD | {"encoders": 8, "decoders": 8})) == 1
