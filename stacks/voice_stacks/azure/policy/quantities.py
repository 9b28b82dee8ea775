"""Exact parsing of Kubernetes quantities.

The grammar is that of https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity.
"""

import re
from decimal import Decimal

BYTES_PER_GIB = 2**30

_EXPONENT_BY_DECIMAL_SUFFIX = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT_BY_BINARY_SUFFIX = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NUMBER_PATTERN = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(.*)", re.DOTALL)
_EXPONENT_PATTERN = re.compile(r"[eE]([+-]?[0-9]+)")


class QuantityError(ValueError):
    """Text that the API server rejects as a quantity."""


def parse_quantity(text: str) -> Decimal:
    """Return the numeric value of a quantity.

    Raises:
        QuantityError: The text is not a quantity, such as ``400Gb``.
    """
    match = _NUMBER_PATTERN.fullmatch(text)
    if match:
        number, suffix = Decimal(match[1]), match[2]
        if suffix in _EXPONENT_BY_DECIMAL_SUFFIX:
            return number.scaleb(_EXPONENT_BY_DECIMAL_SUFFIX[suffix])
        if suffix in _EXPONENT_BY_BINARY_SUFFIX:
            return number * (1 << _EXPONENT_BY_BINARY_SUFFIX[suffix])
        if exponent := _EXPONENT_PATTERN.fullmatch(suffix):
            return number.scaleb(int(exponent[1]))
    raise QuantityError(f'"{text}" is no quantity{_suggest_correction(text)}')


def _suggest_correction(text: str) -> str:
    """Return the probable correction, such as ``400Gi`` for ``400Gb``."""
    match = _NUMBER_PATTERN.fullmatch(text)
    if match and match[2][:1].upper() in {"K", "M", "G", "T", "P", "E"}:
        return f"; write {match[1]}{match[2][0].upper()}i"
    return "; write a number with Ki, Mi, Gi or Ti, or m for thousandths"


def parse_gib(text: str) -> float:
    """Return a quantity of bytes in GiB, or 0 if it is empty or invalid. Another rule reports invalid quantities."""
    return float(parse_quantity_or_zero(text)) / BYTES_PER_GIB


def parse_quantity_or_zero(text: str) -> Decimal:
    """Return the numeric value of a quantity, or 0 if it is empty or invalid."""
    try:
        return parse_quantity(text) if text else Decimal(0)
    except QuantityError:
        return Decimal(0)
