"""The sending half of SRTP: AES-128 counter mode with HMAC-SHA1 (RFC 3711), or AES-128-GCM (RFC 7714).

It does not use libsrtp.
"""

import base64
import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_HEADER_BYTES = 12
_REPORT_HEADER_BYTES = 8
_ENCRYPTED = 1 << 31
_TAG_BYTES = 10
GCM_BYTES = 28


class Protector:
    """Protects one session's packets, whose sequence numbers do not wrap."""

    def __init__(self, master: bytes) -> None:
        key, salt = master[:16], master[16:].ljust(14, b"\0")
        self._gcm = len(master) == GCM_BYTES
        self._key, self._report_key = (_derived(key, salt, label, 16) for label in (0, 3))
        self._authentication, self._report_authentication = (_derived(key, salt, label, 20) for label in (1, 4))
        self._salt, self._report_salt = (int.from_bytes(_derived(key, salt, label, 14), "big") for label in (2, 5))
        self._reports = 0

    def protect(self, packet: bytes) -> bytes:
        """Encrypt the payload and append the tag."""
        sequence, ssrc = struct.unpack_from(">2xH4xI", packet)
        if self._gcm:
            number = (self._salt >> 16) ^ (ssrc << 48) ^ sequence
            header = packet[:_HEADER_BYTES]
            return header + _sealed(self._key, number, packet[_HEADER_BYTES:], header)
        counter = (self._salt << 16) ^ (ssrc << 64) ^ (sequence << 16)
        body = packet[:_HEADER_BYTES] + _aes(self._key, counter, packet[_HEADER_BYTES:])
        tag = hmac.digest(self._authentication, body + bytes(4), "sha1")
        return body + tag[:_TAG_BYTES]

    def protect_report(self, report: bytes) -> bytes:
        """Encrypt an RTCP packet behind its first header and append the index and the tag (section 3.4)."""
        (ssrc,) = struct.unpack_from(">4xI", report)
        if self._gcm:
            number = (self._report_salt >> 16) ^ (ssrc << 48) ^ self._reports
            header, word = report[:_REPORT_HEADER_BYTES], struct.pack(">I", _ENCRYPTED | self._reports)
            self._reports += 1
            return header + _sealed(self._report_key, number, report[_REPORT_HEADER_BYTES:], header + word) + word
        counter = (self._report_salt << 16) ^ (ssrc << 64) ^ (self._reports << 16)
        body = report[:_REPORT_HEADER_BYTES] + _aes(self._report_key, counter, report[_REPORT_HEADER_BYTES:])
        body += struct.pack(">I", _ENCRYPTED | self._reports)
        self._reports += 1
        return body + hmac.digest(self._report_authentication, body, "sha1")[:_TAG_BYTES]


def master(seed: int, size: int = 30) -> bytes:
    """Return a master key with its salt: 30 bytes, or 28 for AES-GCM."""
    return hashlib.sha256(seed.to_bytes(4, "big")).digest()[:size]


def text_of(key: bytes) -> str:
    """Return a master key in the encoding of the state store."""
    return base64.b64encode(key).decode()


def _derived(key: bytes, salt: bytes, label: int, size: int) -> bytes:
    counter = (int.from_bytes(salt, "big") ^ (label << 48)) << 16
    return _aes(key, counter, bytes(size))


def _sealed(key: bytes, number: int, text: bytes, header: bytes) -> bytes:
    return AESGCM(key).encrypt(number.to_bytes(12, "big"), text, header)


def _aes(key: bytes, counter: int, text: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
    return encryptor.update(text) + encryptor.finalize()
