"""How a mend gets into moto: a subclass of a service's responses takes the routes of moto's own."""

from __future__ import annotations

from types import ModuleType
from typing import Any, cast

from botocore import xform_name
from moto.core.base_backend import BaseBackend
from moto.core.responses import ActionResult, BaseResponse

Record = dict[str, Any]


def take_over(urls: ModuleType, original: type[BaseResponse], mended: type[BaseResponse]) -> None:
    """Route a service's requests to responses that extend moto's.

    Args:
        urls: The service's module of routes.
        original: moto's responses.
        mended: A subclass of them.
    """
    for path, handler in list(urls.url_paths.items()):
        if getattr(handler, "__self__", None) is original:
            urls.url_paths[path] = getattr(mended, handler.__name__)


def records(backend: BaseBackend, kind: str) -> dict[str, Record]:
    """Return the resources of a kind that moto does not know; they lie in moto's backend and go with it at a reset."""
    kept: dict[str, Record] = backend.__dict__.setdefault(f"sandbox_{kind}", {})
    return kept


def result(answer: ActionResult) -> Record:
    """Return what an answer of moto's holds, which is a dictionary in every operation that is mended here."""
    return cast("Record", answer.result)


def keep(model: object, request: Record, *names: str) -> None:
    """Put parameters of a request on a model that does not keep them; moto's serialiser finds them there."""
    for name in names:
        if name in request:
            setattr(model, xform_name(name), request[name])
