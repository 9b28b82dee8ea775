"""Detection of secrets in source files, templates, logs and image layers.

The patterns are those of detect-secrets. `python -m voice_ops.images.secret_scan ARCHIVE...` scans images.
"""

import gzip
import io
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from detect_secrets.plugins import (
    artifactory,
    aws,
    azure_storage_key,
    basic_auth,
    discord,
    github_token,
    jwt,
    npm,
    private_key,
    sendgrid,
    slack,
    stripe,
)
from detect_secrets.plugins.base import RegexBasedDetector


class HubTokenDetector(RegexBasedDetector):
    """Detector of Hugging Face tokens, which deployments of gated models use."""

    secret_type = "Hugging Face token"  # noqa: S105
    denylist = (re.compile(r"\bhf_[A-Za-z0-9]{34}\b"),)


class TwilioKeyDetector(RegexBasedDetector):
    """Detector of the SIDs of Twilio API keys. Account SIDs (``AC...``) are in every webhook, and therefore public."""

    secret_type = "Twilio API Key"  # noqa: S105
    denylist = (re.compile(r"\bSK[a-z0-9]{32}\b"),)


# Only detectors with a specific pattern are used. An entropy detector would match every digest, and a keyword detector
# ("password") every program.
SECRET_DETECTORS = (
    artifactory.ArtifactoryDetector(),
    aws.AWSKeyDetector(),
    azure_storage_key.AzureStorageKeyDetector(),
    basic_auth.BasicAuthDetector(),
    discord.DiscordBotTokenDetector(),
    github_token.GitHubTokenDetector(),
    jwt.JwtTokenDetector(),
    npm.NpmDetector(),
    private_key.PrivateKeyDetector(),
    sendgrid.SendGridDetector(),
    slack.SlackDetector(),
    stripe.StripeDetector(),
    TwilioKeyDetector(),
    HubTokenDetector(),
)
FALSE_POSITIVE_PATTERN = re.compile(r"EXAMPLE\b|\bsha512-")
"""Lines with AWS's documented examples, and with npm's digests."""


def scan_text(location: str, text: str) -> Iterator[str]:
    """Yield the location and the kind of each secret in the text, but never the secret itself."""
    for detector in SECRET_DETECTORS:
        for match in (match for shape in detector.denylist for match in shape.finditer(text)):
            begin = text.rfind("\n", 0, match.start()) + 1
            line = text[begin:].partition("\n")[0]
            # Some detectors also verify a match of their pattern, such as whether a token can be decoded.
            if not FALSE_POSITIVE_PATTERN.search(line) and any(detector.analyze_string(match[0])):
                yield f"{location}:{text.count(chr(10), 0, begin) + 1}: {detector.secret_type}"


def scan_archive(archive: Path) -> Iterator[str]:
    """Yield the secrets in every layer of an image archive, including those that a later layer deletes."""
    with archive.open("rb") as file:
        yield from _scan_file(archive.name, file)


def _scan_file(location: str, file: io.BufferedReader) -> Iterator[str]:
    """Scan layers as a stream, since the size of an image can be several gigabytes."""
    if file.peek(2)[:2] == b"\x1f\x8b":
        file = io.BufferedReader(gzip.GzipFile(fileobj=file))
    head = file.peek(512)
    if head[257:262] == b"ustar":
        with tarfile.open(fileobj=file, mode="r|") as tar:
            for member in tar:
                inner = tar.extractfile(member) if member.isfile() else None
                if isinstance(inner, io.BufferedReader):
                    yield from _scan_file(f"{location}/{member.name}", inner)
    elif b"\0" not in head:
        yield from scan_text(location, file.read().decode("utf-8", "replace"))


def main(archives: list[str]) -> int:
    """Print all findings, and return 1 if there are any."""
    results = [each for archive in archives for each in scan_archive(Path(archive))]
    print("\n".join(results) or f"no secrets in {', '.join(archives)}")
    return 1 if results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
