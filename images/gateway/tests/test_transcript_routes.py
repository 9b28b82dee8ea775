"""Requests for archived transcripts, with an archive in memory; test_archive.py covers real ones."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.requests import Request
from starlette.responses import Response

from voice_gateway.archive import ArchivedTranscript, ArchiveEntry
from voice_gateway.refusals import Refusal
from voice_gateway.transcript_routes import delete_transcript, read_transcript
from voice_runtime.sessions import Session, SessionKind, SessionState
from voice_runtime.transcripts import EventKind, Transcript

ID = "00000007-" + "5" * 24
SESSION = Session(
    ssrc=7,
    id=ID,
    state=SessionState.CLOSED,
    kind=SessionKind.GATEWAY,
    caller="shop",
    expires_at=2_000_000_000,
    archived_from=1_790_000_000,
)
FINALS = [
    Transcript(kind=EventKind.FINAL, utterance=0, text="Bonjour à tous", start_ms=0, end_ms=900, language="fr"),
    Transcript(kind=EventKind.FINAL, utterance=100, text="Merci", start_ms=2000, end_ms=2500),
]
ARCHIVED = ArchivedTranscript.from_session(ArchiveEntry.from_session(SESSION, FINALS, ended_at=1_790_000_060), FINALS)


class Gateway(SimpleNamespace):
    """A gateway with an archive of one transcript, unless it has none, and a store of one session.

    Attributes:
        archive: The archive, or ``None``.
    """

    def __init__(self, *, archived: ArchivedTranscript | None = None, stored: Session | None = None) -> None:
        super().__init__(
            archive=AsyncMock(),
            callers=SimpleNamespace(identify=AsyncMock(return_value="shop")),
            sessions=SimpleNamespace(read=AsyncMock(return_value=stored)),
            tokens=SimpleNamespace(derive_ssrc=lambda name: int(name[:8], 16)),
        )
        self.archive.read.return_value = archived

    def request(self, name: str = ID, query: str = "") -> Request:
        app = SimpleNamespace(state=SimpleNamespace(gateway=self))
        return Request(
            {"type": "http", "headers": [], "query_string": query.encode(), "path_params": {"id": name}, "app": app}
        )


def text(response: Response) -> str:
    return bytes(response.body).decode()


@pytest.mark.parametrize("query", ["", "format=jsonl"])
async def test_a_transcript_is_json_lines_by_default(query: str) -> None:
    gateway = Gateway(archived=ARCHIVED)
    response = await read_transcript(gateway.request(query=query))
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/x-ndjson"
    assert response.headers["Cache-Control"] == "no-store"
    assert "à tous" in text(response), "not escaped"
    assert text(response).endswith("}\n")
    assert [json.loads(line) for line in text(response).splitlines()] == [
        {"kind": "final", "id": ID, "start_ms": 0, "end_ms": 900, "text": "Bonjour à tous", "language": "fr"},
        {"kind": "final", "id": ID, "start_ms": 2000, "end_ms": 2500, "text": "Merci"},
    ]
    gateway.archive.read.assert_awaited_once_with(ID)


async def test_a_transcript_is_also_available_as_subtitles() -> None:
    response = await read_transcript(Gateway(archived=ARCHIVED).request(query="format=vtt"))
    assert response.headers["Content-Type"] == "text/vtt; charset=utf-8"
    assert response.headers["Cache-Control"] == "no-store"
    assert text(response) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:00.900\nBonjour à tous\n\n00:00:02.000 --> 00:00:02.500\nMerci\n\n"
    )


@pytest.mark.parametrize(("form", "shown"), [("srt", "srt"), ("zzz", "zzz"), ("x" * 21, "x" * 20)])
async def test_an_unknown_format_is_refused_with_the_known_ones(form: str, shown: str) -> None:
    """Of a long value, only the beginning is repeated."""
    with pytest.raises(Refusal) as refused:
        await read_transcript(Gateway(archived=ARCHIVED).request(query=f"format={form}"))
    assert refused.value.status_code == 400
    assert refused.value.detail == f"format: '{shown}' is not one of jsonl, vtt"


async def test_a_transcript_is_deleted_by_its_caller() -> None:
    gateway = Gateway(archived=ARCHIVED)
    response = await delete_transcript(gateway.request())
    assert (response.status_code, bytes(response.body)) == (204, b"")
    gateway.archive.delete.assert_awaited_once_with(ID)


def of_caller(caller: str) -> ArchivedTranscript:
    return replace(ARCHIVED, session=replace(ARCHIVED.session, caller=caller))


UNKNOWN = ("unknown transcript", None)
EARLY = ("not archived yet", {"Retry-After": "5"})


@pytest.mark.parametrize(
    ("gateway", "name", "refusal"),
    [
        pytest.param(Gateway(), ID, UNKNOWN, id="neither"),
        pytest.param(Gateway(archived=of_caller("a")), ID, UNKNOWN, id="of another caller"),
        pytest.param(Gateway(archived=of_caller("z")), ID, UNKNOWN, id="of yet another caller"),
        pytest.param(Gateway(archived=ARCHIVED, stored=SESSION), ID.upper().replace("5", "A"), UNKNOWN, id="no id"),
        pytest.param(Gateway(stored=SESSION), ID, EARLY, id="not yet"),
        pytest.param(Gateway(archived=of_caller("z"), stored=SESSION), ID, EARLY, id="foreign, and not yet"),
        *(
            pytest.param(Gateway(stored=replace(SESSION, **fields)), ID, UNKNOWN, id=f"session with {fields}")
            for fields in (
                {"id": ID.replace("5", "4")},
                {"id": ID.replace("5", "6")},
                {"caller": "a"},
                {"caller": "z"},
                {"archived_from": 0},
            )
        ),
    ],
)
async def test_other_requests_are_refused_without_a_difference_between_foreign_and_unknown(
    gateway: Any, name: str, refusal: tuple[str, dict[str, str] | None]
) -> None:
    """Only the caller of the session learns that its transcript is being written."""
    for route in (read_transcript, delete_transcript):
        with pytest.raises(Refusal) as refused:
            await route(gateway.request(name))
        assert (refused.value.status_code, refused.value.error, refused.value.headers) == (404, *refusal)
    gateway.archive.delete.assert_not_awaited()


async def test_a_deployment_without_an_archive_says_so() -> None:
    gateway = Gateway(stored=SESSION)
    gateway.archive = None
    for route in (read_transcript, delete_transcript):
        with pytest.raises(Refusal) as refused:
            await route(gateway.request())
        assert (refused.value.status_code, refused.value.error) == (404, "no archive")
