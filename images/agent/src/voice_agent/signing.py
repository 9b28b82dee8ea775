"""Signs requests to an operator's tools according to Standard Webhooks.

Libraries for many languages can verify the signatures.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md, section "Signature scheme":
HMAC-SHA256 over id, time and body, separated by dots. The body of ``GET`` is empty.
"""

import base64
import binascii
import hmac
import secrets
import time

SECRET_PREFIX = "whsec_"  # noqa: S105  not a secret
"""Prefix of a base64 secret in that specification."""
MIN_KEY_BYTES = 24
"""Minimum length of a key in the specification. The maximum length is 64."""


def decode_key(secret: str) -> bytes:
    """Return the key from a secret. The key is decoded from base64 if the secret starts with ``whsec_``.

    Raises:
        ValueError: The secret is not valid base64, or the key is too short.
    """
    try:
        encoded = secret.removeprefix(SECRET_PREFIX)
        key = base64.b64decode(encoded, validate=True) if encoded != secret else secret.encode()
    except binascii.Error:
        raise ValueError(f"has no base64 after {SECRET_PREFIX}") from None
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(f"has {len(key)} bytes, at least {MIN_KEY_BYTES} are needed")
    return key


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a request.

    Args:
        message_id: Id of the request, which receivers use to detect duplicates.
        timestamp: Seconds since 1970.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(decode_key(secret), signed, 'sha256')).decode()}"


def create_signature_headers(secret: str, body: bytes) -> dict[str, str]:
    """Return the headers that sign a request, or no headers if the secret is empty."""
    if not secret:
        return {}
    message, timestamp = f"msg_{secrets.token_hex(12)}", int(time.time())
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, message, timestamp, body),
    }
