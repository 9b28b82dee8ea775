"""Returns and deletes archived transcripts."""

import json

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from voice_blueprint.contract.session_api import ARCHIVE_CONTENT_TYPE
from voice_gateway.archive import Archive, ArchivedTranscript
from voice_gateway.gateway import Gateway
from voice_gateway.refusals import Refusal, build_retry_after_header
from voice_gateway.tokens import SESSION_ID_PATTERN

TRANSCRIPT_FORMATS = ("jsonl", "vtt")
NO_STORE_HEADERS = {"Cache-Control": "no-store"}


async def read_transcript(request: Request) -> Response:
    """Return a transcript to the caller who opened its session, as JSON lines or as WebVTT."""
    form = request.query_params.get("format", TRANSCRIPT_FORMATS[0])
    if form not in TRANSCRIPT_FORMATS:
        raise Refusal(400, "bad request", f"format: {form[:20]!r} is not one of {', '.join(TRANSCRIPT_FORMATS)}")
    transcript = await _read_authorized_transcript(request)
    if form == "vtt":
        return PlainTextResponse(transcript.to_vtt(), media_type="text/vtt", headers=NO_STORE_HEADERS)
    lines = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in transcript.lines)
    return Response(lines, media_type=ARCHIVE_CONTENT_TYPE, headers=NO_STORE_HEADERS)


async def delete_transcript(request: Request) -> Response:
    """Delete one of the caller's transcripts. The index entry remains, but contains none of the text."""
    transcript = await _read_authorized_transcript(request)
    gateway: Gateway = request.app.state.gateway
    await _require_archive(gateway).delete(transcript.session.id)
    return Response(status_code=204)


async def _read_authorized_transcript(request: Request) -> ArchivedTranscript:
    """Return the requested transcript, if it belongs to the caller.

    Raises:
        Refusal: The transcript does not exist, or belongs to another caller. The response is the same in both cases.
    """
    gateway: Gateway = request.app.state.gateway
    caller = await gateway.callers.identify(request)
    archive, name = _require_archive(gateway), request.path_params["id"]
    if SESSION_ID_PATTERN.fullmatch(name):
        transcript = await archive.read(name)
        if transcript is not None and transcript.session.caller == caller:
            return transcript
        session = await gateway.sessions.read(gateway.tokens.derive_ssrc(name))
        if session is not None and session.id == name and session.caller == caller and session.archived_from:
            detail = "the session is not over, its transcript is being written, or it has no words; try again"
            raise Refusal(404, "not archived yet", detail, build_retry_after_header(5))
    raise Refusal(404, "unknown transcript", "there is no such transcript, or it is kept no longer")


def _require_archive(gateway: Gateway) -> Archive:
    if gateway.archive is None:
        raise Refusal(404, "no archive", "this deployment archives no transcripts")
    return gateway.archive
