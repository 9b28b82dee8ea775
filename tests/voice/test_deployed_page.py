"""A page of another origin uses the deployed session API of the local AWS, with a real gateway process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.blueprint.documents import Edits, edit_document, load_text
from tests.voice.api_gateway import ApiGateway
from tests.voice.test_page import check_transcript, wait_for_transcript
from voice_blueprint.shipped import ROOT
from voice_ops.call.access import AuthorizerType, ClientAuth, create_header_provider
from voice_ops.demo.command import find_weights
from voice_ops.demo.services import VoicePath
from voice_ops.demo.web import PageServer
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import Cdk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from voice_blueprint import Deployment

LOCAL = ("FLEET", "HOST", "PORT", "VALKEY", "MEDIA_HOST", "TOKEN_KEY", "DRAIN")
"""Variables of the deployed task that contain addresses in AWS, replaced by local ones."""

CLOSE_AND_READ = """async ([module, url, token]) => {
    const { events } = await import(module);
    const headers = { "X-Voice-Token": token };
    const told = [(await fetch(url, { method: "DELETE", headers })).status];
    for await (const event of events(`${url}/events`, headers)) told.push(event.type);
    return told;
}"""
TRY_TO_OPEN = """async (url) => {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(url, { method: "POST", headers, body: '{"transport": "websocket"}' });
    return { status: answer.status, ...(await answer.json()) };
}"""


@dataclass
class Deployed:
    """A deployed sandbox connected to the voice path.

    Attributes:
        path: The voice path of the sandbox.
        page: The demo's page, at a different origin.
    """

    rehearsal: Rehearsal
    path: VoicePath
    page: PageServer

    def deployment(self, authorizer: str) -> Deployment:
        edits: Edits = {
            "aws.edge.authorizer": {"kind": authorizer},
            "aws.edge.allowed_origins": [origin(self.page)],
        }
        file = self.rehearsal.home / authorizer
        file.mkdir(exist_ok=True)
        return load_text(edit_document(edits, (ROOT / "deployments/sandbox.yaml").read_text()), file)

    def deploy(self, authorizer: str, *options: str) -> ApiGateway:
        """Deploy the edge, run the gateway as in its task, and return the API in front of it."""
        cdk = Cdk(self.rehearsal.aws, self.deployment(authorizer), self.rehearsal.home)
        cdk._run("deploy", "sandbox-edge", "--require-approval", "never", *options)
        ecs = self.rehearsal.aws.client("ecs")
        (revision, *_) = ecs.list_task_definitions(sort="DESC")["taskDefinitionArns"]
        (container,) = ecs.describe_task_definition(taskDefinition=revision)["taskDefinition"]["containerDefinitions"]
        told = {variable["name"]: variable["value"] for variable in container["environment"]}
        told = {n: v for n, v in told.items() if not n.removeprefix("VOICE_").startswith(LOCAL)}
        told = {name: value for name, value in told.items() if not name.endswith("_PORT")}
        gateway = self.path.start_gateway(f"gateway-{authorizer}", **told)
        self.path.wait_until_ready()
        self.path.wait_for_capacity(gateway)
        return ApiGateway(self.rehearsal.aws.client("apigateway"), gateway.url)


def origin(page: PageServer) -> str:
    """Return a page's origin in the format of a deployment file."""
    return page.url.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    page = PageServer()
    with (
        VoicePath(tmp_path_factory.mktemp("voice"), find_weights(None)) as path,
        Rehearsal(load_text((ROOT / "deployments/sandbox.yaml").read_text(), tmp_path_factory.mktemp("file"))) as aws,
    ):
        aws.bootstrap()
        path.start_store().wait_until_ready()
        path.start_vad()
        path.start_engine()
        yield Deployed(aws, path, page)


@pytest.fixture(scope="module")
def open_api(deployed: Deployed) -> Iterator[ApiGateway]:
    """Open the page with an API that creates sessions without authentication."""
    with deployed.deploy("none") as api:
        deployed.page.start(gateway=api.url)
        yield api
        deployed.page.stop()


@pytest.fixture
def page(browser: Browser, deployed: Deployed, open_api: ApiGateway) -> Iterator[Page]:
    del open_api
    page = browser.new_page()
    page.goto(origin(deployed.page))
    yield page
    page.close()


def test_page_of_an_allowed_origin_is_transcribed(page: Page, open_api: ApiGateway, tmp_path: Path) -> None:
    page.click("#sample")
    check_transcript(wait_for_transcript(page, tmp_path))
    assert "% of the audio was dropped" in page.inner_text("#share")
    assert "decode" in page.inner_text("#stages")
    assert page.is_enabled("#sample")
    assert page.is_disabled("#stop")
    assert ("OPTIONS", "/v1/sessions") in open_api.asked


def test_a_page_of_another_origin_is_blocked_by_cors(
    browser: Browser, open_api: ApiGateway, deployed: Deployed
) -> None:
    page = browser.new_page()
    page.goto(deployed.page.url)  # another host name of the same server is another origin
    opened = f"{open_api.url}/v1/sessions"
    with pytest.raises(Exception, match="Failed to fetch"):
        page.evaluate(TRY_TO_OPEN, opened)
    page.close()


def test_a_page_can_read_errors_of_api_gateway(page: Page, open_api: ApiGateway) -> None:
    refused: dict[str, Any] = page.evaluate(TRY_TO_OPEN, f"{open_api.url}/v1/sessions")
    assert refused["status"] == 201
    answer = page.evaluate(TRY_TO_OPEN.replace('"websocket"', '"pigeon"'), f"{open_api.url}/v1/sessions")
    assert (answer["status"], answer["error"]) == (400, "Invalid request body")


def test_events_of_a_session_only_require_its_token(
    page: Page, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in production, a server creates the session with AWS credentials, and a page uses it."""
    for name, value in deployed.rehearsal.build_tool_environment().items():
        monkeypatch.setenv(name, value)
    with deployed.deploy("iam", "--exclusively") as api:
        refused = page.evaluate(TRY_TO_OPEN, f"{api.url}/v1/sessions")
        assert (refused["status"], refused["error"]) == (403, "Missing Authentication Token")

        auth = ClientAuth(create_header_provider(AuthorizerType.IAM, None, api.url))
        opened = httpx2.post(f"{api.url}/v1/sessions", json={"transport": "websocket"}, auth=auth).json()
        module, url = f"{origin(deployed.page)}/events.js", f"{api.url}/v1/sessions/{opened['id']}"
        closed, *types = page.evaluate(CLOSE_AND_READ, [module, url, opened["token"]])
        assert (closed, types[-1]) == (204, "end")
