"""Signatures of images in cosign's format: ECDSA on P-256 over SHA-256, verified with a public key."""

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

NameT = TypeVar("NameT", bound=str)


def validate_public_key(pem: str) -> str:
    """Return a public key unchanged if it is valid.

    Raises:
        ValueError: The text is not a PEM-encoded ECDSA key on the curve P-256.
    """
    _load_public_key(pem)
    return pem


def extract_pem_body(pem: str) -> str:
    """Return the body of a PEM text as one line."""
    return "".join(pem.strip().splitlines()[1:-1])


def format_digest_manifest(images: Mapping[NameT, str]) -> str:
    """Return the text to sign for a deployment's digests: sorted JSON without spaces, and a newline."""
    return json.dumps(dict(sorted(images.items())), separators=(",", ":")) + "\n"


def is_signature_valid(pem: str, signature: str, content: bytes) -> bool:
    """Return True if the key verifies a base64 signature of the content."""
    # Imported here, since most commands verify no signatures.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    try:
        _load_public_key(pem).verify(base64.b64decode(signature, validate=True), content, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):  # invalid base64
        return False
    return True


def _load_public_key(pem: str) -> "ec.EllipticCurvePublicKey":
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        key = load_pem_public_key(pem.encode())
    except ValueError:
        raise ValueError("is not a public key in PEM format; use the output of `cosign public-key`") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("is not an ECDSA key on the curve P-256, the only kind that hosts can verify")  # noqa: TRY004  pydantic reports the location of a ValueError
    return key
