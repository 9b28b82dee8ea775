# ruff: noqa: ANN401  type hints and requests are anything
"""An authority on AKS requests that the program does not know: the models of Microsoft's own Python SDK.

`azure-mgmt-containerservice` takes any dictionary; the names, types and enumerations that its classes declare are
read here and held against what the program asks for.
"""

import enum
import re
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from azure.mgmt.containerservice import models

_PATH = {
    models.ManagedCluster: {"resourceGroupName", "resourceName"},
    models.AgentPool: {"resourceGroupName", "resourceName", "agentPoolName"},
    models.MaintenanceConfiguration: {"resourceGroupName", "resourceName", "configName"},
}
"""Inputs that become part of the request's path."""


def problems(model: Any, inputs: Mapping[str, Any]) -> list[str]:
    """Return what a model does not allow in the inputs of a resource of azure-native.

    Args:
        model: `ManagedCluster`, `AgentPool` or `MaintenanceConfiguration`.
        inputs: The inputs as azure-native takes them: without `properties`, keys in camel case.
    """
    return list(_object(model, _request(model, inputs), ""))


def _request(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in inputs.items() if key not in _PATH[model]}
    envelope = {key: body.pop(key) for key in list(body) if key in _fields(model) and not _fields(model)[key][1]}
    if "autoScalerProfile" in body:
        body["autoScalerProfile"] = {_kebab(key): value for key, value in body["autoScalerProfile"].items()}
    identity = envelope.get("identity")
    if isinstance(identity, dict) and isinstance(identity.get("userAssignedIdentities"), list):
        listed: dict[str, Any] = {str(key): {} for key in identity["userAssignedIdentities"]}
        envelope["identity"] = {**identity, "userAssignedIdentities": listed}
    return {**envelope, "properties": body}


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


@cache
def _fields(model: Any) -> dict[str, tuple[Any, bool]]:
    """Return type, and whether Azure alone sets it, by the name on the wire."""
    model({})  # the SDK builds its tables with the first object
    hints = typing.get_type_hints(model, localns={"_models": models})
    return {
        field._rest_name: (hints[name], field._visibility == ["read"])
        for name, field in model._attr_to_rest_field.items()
    }


def _object(model: Any, value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{at}: {value!r} is no {model.__name__}"
        return
    fields = _fields(model)
    for key, item in value.items():
        place = f"{at}.{key}".lstrip(".")
        if key not in fields:
            yield f"{place}: {model.__name__} has no such property"
        elif fields[key][1]:
            yield f"{place}: only Azure sets it"
        else:
            yield from _value(fields[key][0], item, place)


def _value(kind: Any, value: Any, at: str) -> Iterator[str]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        yield from _union(arguments, value, at)
    elif origin is list:
        if not isinstance(value, list):
            yield f"{at}: {value!r} is no list"
            return
        for index, item in enumerate(value):
            yield from _value(arguments[0], item, f"{at}[{index}]")
    elif origin is dict:
        if not isinstance(value, Mapping):
            yield f"{at}: {value!r} is no map"
            return
        for key, item in value.items():
            yield from _value(arguments[1], item, f"{at}[{key}]")
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        yield from _enumeration(kind, value, at)
    elif kind.__module__.endswith("_models"):
        yield from _object(kind, value, at)
    else:
        yield from _scalar(kind, value, at)


def _union(arguments: tuple[Any, ...], value: Any, at: str) -> Iterator[str]:
    if value is None and type(None) in arguments:
        return
    kinds = [kind for kind in arguments if kind is not type(None)]
    # `Union[str, Enum]`: the SDK lets any text through for versions to come, this check does not.
    enumerations = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, enum.Enum)]
    yield from _value((enumerations or kinds)[0], value, at)


def _enumeration(kind: type[enum.Enum], value: Any, at: str) -> Iterator[str]:
    allowed = [member.value for member in kind]
    if value not in allowed:
        yield f"{at}: {value!r} is none of {', '.join(map(str, allowed))}"


_SCALARS: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int, float), float: (int, float)}


def _scalar(kind: Any, value: object, at: str) -> Iterator[str]:
    allowed = _SCALARS.get(kind, (str,))  # dates and times are text on the wire
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        yield f"{at}: {value!r} is no {kind.__name__}"
    elif kind is int and isinstance(value, float) and not value.is_integer():
        yield f"{at}: {value!r} is no whole number"
