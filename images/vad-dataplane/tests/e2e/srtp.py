"""A sender's half of SRTP (RFC 3711): AES-128 counter mode, HMAC-SHA1 with 80 bits. Independent of libsrtp."""

import base64
import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_HEADER_BYTES = 12
_TAG_BYTES = 10


class Protector:
    """Protects one session's packets, whose sequence numbers do not wrap."""

    def __init__(self, master: bytes) -> None:
        key, salt = master[:16], master[16:]
        self._key = _derived(key, salt, 0, 16)
        self._authentication = _derived(key, salt, 1, 20)
        self._salt = int.from_bytes(_derived(key, salt, 2, 14), "big")

    def protect(self, packet: bytes) -> bytes:
        """Encrypt the payload and append the tag."""
        sequence, ssrc = struct.unpack_from(">2xH4xI", packet)
        counter = (self._salt << 16) ^ (ssrc << 64) ^ (sequence << 16)
        body = packet[:_HEADER_BYTES] + _aes(self._key, counter, packet[_HEADER_BYTES:])
        tag = hmac.digest(self._authentication, body + bytes(4), "sha1")
        return body + tag[:_TAG_BYTES]


def master(seed: int) -> bytes:
    """Return the 30 bytes of a master key and its salt."""
    return hashlib.sha256(seed.to_bytes(4, "big")).digest()[:30]


def text_of(key: bytes) -> str:
    """Return a master key as the state store holds it."""
    return base64.b64encode(key).decode()


def _derived(key: bytes, salt: bytes, label: int, size: int) -> bytes:
    counter = (int.from_bytes(salt, "big") ^ (label << 48)) << 16
    return _aes(key, counter, bytes(size))


def _aes(key: bytes, counter: int, text: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
    return encryptor.update(text) + encryptor.finalize()
