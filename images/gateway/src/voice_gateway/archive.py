"""Stores transcripts in an archive, with one object per session in an S3 bucket or an Azure Blob Storage container.

An object contains gzipped JSON lines: the session, followed by a line for each final transcript. The object's key is
derived from the session's id, so that reading and deleting need no lookup. Index objects contain the entries of many
sessions, and are read by query engines (docs/archive.md).
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self

import obstore
from obstore.exceptions import PermissionDeniedError
from obstore.store import ObjectStore, from_url

from voice_blueprint.contract.session_api import ARCHIVE_INDEX_PREFIX, ARCHIVE_PREFIX, USAGE_PREFIX
from voice_gateway.subtitles import Segment, TranscriptFormat, format_header, format_vtt
from voice_runtime.sessions import Session
from voice_runtime.transcripts import Transcript

REQUEST_TIMEOUT = timedelta(seconds=10)
"""Timeout for a request. The client retries failed requests for at most the same duration."""


@dataclass(frozen=True)
class ArchiveEntry:
    """The first line of an archived object, which is also the session's entry in the index.

    Attributes:
        id: Id of the session.
        caller: Caller that opened the session, and may read and delete the transcript.
        began_at: Time at which the session was opened (ISO 8601, UTC).
        ended_at: Time at which the session ended.
        language: First detected language, or the requested one.
        duration_ms: End of the last final transcript in the audio.
        finals: Number of final transcripts with words.
        characters: Characters of all final transcripts.
        complete: Whether all speech has been transcribed.
        lost_ms: Audio that never reached an engine.
        key: Key of the object.
    """

    id: str
    caller: str
    began_at: str
    ended_at: str
    language: str | None
    duration_ms: int
    finals: int
    characters: int
    complete: bool
    lost_ms: int
    key: str

    @classmethod
    def from_session(cls, session: Session, finals: Sequence[Transcript], ended_at: float) -> Self:
        languages = (final.language for final in finals if final.language)
        return cls(
            id=session.id,
            caller=session.caller,
            began_at=_format_iso_time(session.archived_from),
            ended_at=_format_iso_time(ended_at),
            language=next(languages, session.language),
            duration_ms=max((final.end_ms for final in finals), default=0),
            finals=len(finals),
            characters=sum(len(final.text) for final in finals),
            complete=session.is_transcribed and not session.lost_ms,
            lost_ms=session.lost_ms,
            key=build_archive_key(session.id),
        )


@dataclass(frozen=True)
class ArchivedTranscript:
    """The content of an archived object.

    Attributes:
        lines: The final transcripts, as the API returns them.
    """

    session: ArchiveEntry
    lines: tuple[dict[str, Any], ...]

    def pack(self) -> bytes:
        """Return the bytes of the object. Equal content results in equal bytes."""
        rows = ({"kind": "session", **asdict(self.session)}, *self.lines)
        return gzip_json_lines(json.dumps(row, ensure_ascii=False) for row in rows)

    @classmethod
    def from_session(cls, session: ArchiveEntry, finals: Iterable[Transcript]) -> Self:
        return cls(session, tuple(_build_transcript_line(session.id, final) for final in finals))

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Parse the bytes of an object."""
        head, *lines = (json.loads(line) for line in gzip.decompress(data).decode().splitlines())
        head.pop("kind")
        return cls(ArchiveEntry(**head), tuple(lines))

    def to_vtt(self) -> str:
        """Return the transcript as WebVTT."""
        segments = (Segment(line["text"], line["start_ms"] / 1000, line["end_ms"] / 1000) for line in self.lines)
        return format_header(TranscriptFormat.VTT) + format_vtt(segments)


class Archive:
    """The bucket or container that stores transcripts.

    Args:
        url: URL such as ``https://BUCKET.s3.REGION.amazonaws.com`` or
            ``https://ACCOUNT.blob.core.windows.net/CONTAINER``. Credentials are those of the task's role, or of the
            pod's workload identity.
        endpoint: URL of another server with the same protocol, such as an emulator.
    """

    def __init__(self, url: str, endpoint: str = "") -> None:
        self._store: ObjectStore = from_url(
            url,
            config={"endpoint": endpoint} if endpoint else {},
            client_options={"timeout": REQUEST_TIMEOUT, "allow_http": endpoint.startswith("http://")},
            retry_config={"max_retries": 2, "retry_timeout": REQUEST_TIMEOUT},
        )

    async def write(self, transcript: ArchivedTranscript) -> None:
        """Write a session's transcript, replacing any earlier one."""
        await self._put_object(transcript.session.key, transcript.pack())

    async def write_index(self, entries: Sequence[str], now: datetime) -> None:
        """Write one or more index entries to an object.

        The first entry determines the object's key, so that a retry replaces the object.
        """
        first = json.loads(entries[0])["id"]
        await self._put_object(f"{ARCHIVE_INDEX_PREFIX}date={now:%Y-%m-%d}/{first}.jsonl.gz", gzip_json_lines(entries))

    async def write_usage(self, day: date, table: str) -> None:
        """Write the usage of a day as CSV, replacing any earlier file."""
        await self._put_object(f"{USAGE_PREFIX}date={day.isoformat()}/callers.csv", table.encode())

    async def read(self, session_id: str) -> ArchivedTranscript | None:
        """Return the transcript of a session, or ``None`` if the archive does not contain it."""
        try:
            response = await obstore.get_async(self._store, build_archive_key(session_id))
            return ArchivedTranscript.unpack(bytes(await response.bytes_async()))
        # S3 responds with 403 to a role without permission to list the bucket
        except (FileNotFoundError, PermissionDeniedError):
            return None

    async def delete(self, session_id: str) -> None:
        """Delete the transcript of a session, if there is one."""
        await obstore.delete_async(self._store, build_archive_key(session_id))

    async def _put_object(self, name: str, body: bytes) -> None:
        await obstore.put_async(self._store, name, body, use_multipart=False)


def build_archive_key(session_id: str) -> str:
    """Return the key of a session's transcript.

    Ids start with random characters, so that S3 can partition by prefix.
    """
    return f"{ARCHIVE_PREFIX}{session_id}.jsonl.gz"


def gzip_json_lines(lines: Iterable[str]) -> bytes:
    """Compress JSON lines to deterministic bytes."""
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def _build_transcript_line(session_id: str, final: Transcript) -> dict[str, Any]:
    words = [[word.text, word.start_ms, word.end_ms] for word in final.words]
    return {
        "kind": "final",
        "id": session_id,
        "start_ms": final.start_ms,
        "end_ms": final.end_ms,
        "text": final.text,
        **({"language": final.language} if final.language else {}),
        **({"words": words} if words else {}),
    }


def _format_iso_time(timestamp_s: float) -> str:
    return datetime.fromtimestamp(timestamp_s, UTC).isoformat(timespec="seconds")


def iter_nonempty_finals(finals: Iterable[Transcript]) -> Iterator[Transcript]:
    """Yield the final transcripts with text. An utterance without words has an empty final transcript."""
    return (final for final in finals if final.text)
