"""Health checks and routes of the two applications, in this process."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.middleware.cors import CORSMiddleware

from images.gateway.tests.test_cells import SETTINGS
from voice_blueprint.contract.openapi import build_openapi_document
from voice_gateway import apps
from voice_gateway.settings import GatewaySettings
from voice_runtime.origins import OriginCheckMiddleware


def request(*, draining: bool = False, accepts_callers: bool = True, store_failure_reason: str | None = None) -> Any:
    event = asyncio.Event()
    if draining:
        event.set()
    fleet = SimpleNamespace(store_failure_reason=store_failure_reason)
    gateway = SimpleNamespace(accepts_callers=accepts_callers, draining=event, fleet=fleet)
    return SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(gateway=gateway)))


@pytest.mark.parametrize(
    ("draining", "accepts_callers", "status", "reason"),
    [
        (False, True, 200, "ok"),
        (True, False, 503, "draining"),
        (False, False, 503, "the state store does not answer"),
    ],
)
async def test_health_is_200_while_callers_are_accepted(
    draining: bool, accepts_callers: bool, status: int, reason: str
) -> None:
    answer = await apps.get_health(request(draining=draining, accepts_callers=accepts_callers))
    assert (answer.status_code, bytes(answer.body).decode()) == (status, f"{reason}\n")


@pytest.mark.parametrize(("failure", "status"), [(None, 200), ("the state store rejects the credentials", 503)])
async def test_liveness_is_503_if_a_replacement_would_help(failure: str | None, status: int) -> None:
    answer = await apps.get_liveness(request(accepts_callers=False, store_failure_reason=failure))
    assert (answer.status_code, bytes(answer.body).decode()) == (status, f"{failure or 'ok'}\n")


async def test_the_description_is_that_of_the_contract() -> None:
    answer = await apps.describe_api(request())
    assert json.loads(bytes(answer.body)) == json.loads(json.dumps(build_openapi_document()))


def middleware(app: Any) -> dict[object, Any]:
    return {each.cls: each for each in app.user_middleware}


@pytest.mark.parametrize("origins", [(), ("https://page.test",)])
@pytest.mark.parametrize("authorizer", ["none", "jwt"])
def test_origins_are_checked_if_callers_need_no_key(origins: tuple[str, ...], authorizer: str) -> None:
    settings = GatewaySettings(**SETTINGS | {"allowed_origins": origins, "authorizer": authorizer})
    gateway: Any = SimpleNamespace(settings=settings)
    for app in (apps.create_session_api(gateway), apps.create_media_api(gateway)):
        found = middleware(app)
        assert (OriginCheckMiddleware in found) is (authorizer == "none")
        if authorizer == "none":
            assert found[OriginCheckMiddleware].args == (origins,)
            assert found[OriginCheckMiddleware].kwargs == {"same_origin": True}, "such as the gateway's own page"
    assert (CORSMiddleware in middleware(apps.create_session_api(gateway))) is bool(origins)
    assert CORSMiddleware not in middleware(apps.create_media_api(gateway))
