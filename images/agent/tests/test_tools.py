"""Tools receive authenticated requests with the caller; the model calls the listed ones."""

import base64
from types import SimpleNamespace

import httpx2
import pytest
from pydantic import ValidationError

from images.agent.tests.conftest import settings_of
from images.agent.tests.engines import Engines
from voice_agent import signing
from voice_agent.refusals import RefusedError
from voice_agent.settings import AgentSettings
from voice_agent.tools import TOOL_REQUEST_TIMEOUT_S, CallerIdentity, Toolset
from voice_agent.trace import ConversationTracer

KEY = b"only-for-tests-only-for-tests-32"
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
SPEAKER = CallerIdentity("c", "anna")


def tools_of(engines: Engines, client: httpx2.AsyncClient, **more: str) -> Toolset:
    settings: AgentSettings = settings_of(engines, 1, tools_url=f"{engines.url}/tools", **more)
    return Toolset(settings, client, ConversationTracer("", 0, "test").begin(), SPEAKER)


def test_signatures_follow_standard_webhooks() -> None:
    """The example of the specification's own libraries: python/tests/test_webhooks.py of standard-webhooks."""
    secret, message, timestamp = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
    signed = signing.sign(secret, message, timestamp, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_key_has_24_bytes() -> None:
    assert signing.decode_key(f"whsec_{base64.b64encode(bytes([0xCF] * 24)).decode()}") == bytes([0xCF] * 24)
    for secret in ("k" * 24, f"whsec_{base64.b64encode(b'k' * 24).decode()}"):
        assert signing.decode_key(secret) == b"k" * 24
    for secret in ("k" * 23, f"whsec_{base64.b64encode(b'k' * 23).decode()}"):
        with pytest.raises(ValueError, match="has 23 bytes, at least 24"):
            signing.decode_key(secret)


@pytest.mark.parametrize("key", ["short", "whsec_no base64", "whsec_AAAA", f"whsec_!{'A' * 32}"])
def test_an_unusable_signing_key_is_rejected_at_startup(engines: Engines, key: str) -> None:
    with pytest.raises(ValidationError, match="tools_key"):
        settings_of(engines, 1, tools_key=key)


async def test_tools_refuse_unsigned_requests(engines: Engines) -> None:
    engines.tools_key = KEY
    async with httpx2.AsyncClient() as client:
        for key in ("", "x" * 32):
            with pytest.raises(RefusedError, match="tools"):
                await tools_of(engines, client, tools_key=key).fetch_schema()
        for key in (SECRET, KEY.decode()):
            tools = tools_of(engines, client, tools_key=key)
            await tools.fetch_schema()
            assert await tools._run_tool("weather", {"city": "Bonn"}) == {"sky": "clear"}
    called = {"name": "weather", "arguments": {"city": "Bonn"}, "conversation": "c", "caller": "anna"}
    assert engines.calls == [called, called]
    assert engines.content_types == [None, "application/json"] * 2


async def test_the_model_waits_longer_for_a_tool_than_the_agent(engines: Engines) -> None:
    """Otherwise, it would answer without the result, or without the reason for its absence."""
    timeouts: list[float] = []
    async with httpx2.AsyncClient() as client:
        model = SimpleNamespace(register_function=lambda *_, timeout_secs: timeouts.append(timeout_secs))
        tools_of(engines, client).register(model)  # type: ignore[arg-type]  # the part of a model that it uses
    assert timeouts[0] > TOOL_REQUEST_TIMEOUT_S


async def test_a_tool_that_is_not_listed_is_not_called(engines: Engines) -> None:
    async with httpx2.AsyncClient() as client:
        tools = tools_of(engines, client)
        await tools.fetch_schema()
        for name in ("transfer_money", "", "weather ", "Weather"):
            assert "error" in await tools._run_tool(name, {})
    assert engines.calls == []
