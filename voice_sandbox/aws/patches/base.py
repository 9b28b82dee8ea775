"""Base for the moto patches, which route a service's requests to a subclass of moto's response class."""

from __future__ import annotations

from types import ModuleType
from typing import Any, cast

from botocore import xform_name
from moto.core.base_backend import BaseBackend
from moto.core.responses import ActionResult, BaseResponse

JsonObject = dict[str, Any]


def replace_response_class(urls: ModuleType, original: type[BaseResponse], patched: type[BaseResponse]) -> None:
    """Route a service's requests to responses that extend moto's.

    Args:
        urls: The service's module of routes.
        original: moto's responses.
        patched: A subclass of ``original``.
    """
    for path, handler in list(urls.url_paths.items()):
        if getattr(handler, "__self__", None) is original:
            urls.url_paths[path] = getattr(patched, handler.__name__)


def get_stored_records(backend: BaseBackend, kind: str) -> dict[str, JsonObject]:
    """Return the resources of a kind that moto lacks. They are stored in moto's backend until the backend is reset."""
    records_by_id: dict[str, JsonObject] = backend.__dict__.setdefault(f"sandbox_{kind}", {})
    return records_by_id


def get_action_result(answer: ActionResult) -> JsonObject:
    """Return the result in a moto response. The result is a dictionary in all patched operations."""
    return cast("JsonObject", answer.result)


def store_parameters(model: object, request: JsonObject, *names: str) -> None:
    """Store request parameters as attributes of a model, where moto's serializer finds them."""
    for name in names:
        if name in request:
            setattr(model, xform_name(name), request[name])
