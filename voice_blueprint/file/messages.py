"""Translates pydantic's errors in deployment files into messages for operators."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from voice_blueprint.file.errors import SettingError
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.text import PATTERN_MESSAGE_KEY
from voice_blueprint.file.source import Location, SourceMap
from voice_blueprint.file.suggestion import find_closest_match, format_suggestion

SETTING_NAMES_BY_OLD_NAME = {
    "breaching_datapoints": ("datapoints_to_alarm",),
    "evaluated_datapoints": ("evaluation_periods",),
    "change": ("adjustment",),
    "beyond": ("lower_bound", "upper_bound"),
}
"""Settings that were renamed, with their current names."""

MAX_REPORTED_ERRORS = 50
"""Maximum number of errors for which similar settings are suggested, because finding them is slow. A file with more
errors is not a deployment file."""

_SUBJECT_PREFIX_PATTERN = re.compile(r"^(Input|String|Tuple|Dictionary|Value) ")
"""Subject at the start of pydantic's messages. Our messages start with the setting instead."""


def deduplicate_errors(error: ValidationError) -> list[ErrorDetails]:
    """Return pydantic's errors without duplicates. A misspelt required key is only reported as unknown."""
    details = error.errors()[:MAX_REPORTED_ERRORS]
    suggestions = {
        (*detail["loc"][:-1], name)
        for detail in details
        if detail["type"] == "extra_forbidden"
        for name in _guess_intended_names(str(detail["loc"][-1]), _list_setting_names(detail["loc"][:-1]))
    }
    parent_locations = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return [
        detail
        for detail in details
        if not (detail["type"] == "missing" and detail["loc"] in suggestions)
        # A list is not too short if its items are invalid, since pydantic only counts the valid ones.
        and not (detail["type"] == "too_short" and detail["loc"] in parent_locations)
    ]


def _guess_intended_names(word: str, fields: list[str]) -> list[str]:
    """Return the settings that an unknown name may refer to: its new names, or the most similar one."""
    new_names = [name for name in SETTING_NAMES_BY_OLD_NAME.get(word, ()) if name in fields]
    near = find_closest_match(word, fields)
    return new_names or ([near] if near else [])


def describe_error(detail: ErrorDetails, source: SourceMap) -> tuple[Location, str]:
    """Translate one of pydantic's errors into a location in the file and a message for operators."""
    location = _truncate_to_existing_location(detail["loc"], source)
    match detail["type"]:
        case "missing":
            location = (*location, detail["loc"][-1])
        case "union_tag_invalid" | "union_tag_not_found":
            location = (*location, detail["ctx"]["discriminator"].strip("'"))
        case "value_error" if isinstance(detail["ctx"]["error"], SettingError):
            location = (*location, *detail["ctx"]["error"].location)
    path = ".".join(map(str, location))
    match detail["type"]:
        case "extra_forbidden":
            fields = _list_setting_names(detail["loc"][:-1])
            word = str(location[-1])
            current_name = " or ".join(
                f"`{name}`" for name in _guess_intended_names(word, fields) if word in SETTING_NAMES_BY_OLD_NAME
            )
            hint = f"; it is called {current_name} now" if current_name else format_suggestion(word, fields)
            message = f"`{path}` is an unknown setting{hint}"
        case "missing" | "union_tag_not_found":
            kinds = ", ".join(_list_variant_tags(location[:-1], str(location[-1])))
            message = f"`{path}` is missing; add it{f': one of {kinds}' if kinds else ''}"
        case "union_tag_invalid":
            message = f"`{path}` is {json.dumps(detail['ctx']['tag'])}: should be {detail['ctx']['expected_tags']}"
        case "value_error":
            message = f"`{path}`: {detail['ctx']['error']}" if path else str(detail["ctx"]["error"])
        case "string_pattern_mismatch":
            value_text = shorten_value(json.dumps(detail["input"], ensure_ascii=False))
            message = f"`{path}` is {value_text}: {_collect_format_descriptions()[detail['ctx']['pattern']]}"
        case kind:
            value = detail["input"]
            value_text = shorten_value(json.dumps(value, ensure_ascii=False))
            message_text = _describe_expected_type(kind, value, detail["loc"]) or _SUBJECT_PREFIX_PATTERN.sub(
                "", detail["msg"]
            )
            message = f"`{path}` is {value_text}: {message_text}"
    return location, message


_UNITS_BY_SUFFIX = {
    "_ms": "milliseconds",
    "_s": "seconds",
    "_days": "days",
    "_gib": "GiB",
    "_mib": "MiB",
    "_usd": "USD",
    "_percent": "percent",
}
"""Units of settings by name suffix."""


def _describe_expected_type(kind: str, value: object, location: Location) -> str | None:
    """Return the expected type and format of a value, or ``None`` if pydantic's message is sufficient."""
    match kind:
        case "int_type" | "int_parsing" | "int_from_float" | "float_type" | "float_parsing":
            type_name = "a number" if kind.startswith("float") else "a whole number"
            unit = next((word for end, word in _UNITS_BY_SUFFIX.items() if str(location[-1]).endswith(end)), None)
            alone = "; write it alone, without quotes, unit and separators" if isinstance(value, str) else ""
            return f"should be {type_name}{f' of {unit}' if unit else ''}{alone}"
        case "string_type":
            return "should be text" + ("; put it in quotes" if isinstance(value, int | float) else "")
        case "bool_type" | "bool_parsing":
            return "should be true or false, without quotes"
        case "tuple_type" | "list_type":
            return "should be a list, such as [first, second]"
        case "model_type" | "model_attributes_type" | "dict_type":
            fields = list(dict.fromkeys(_list_setting_names(location)))
            settings = ", ".join(f"`{name}`" for name in fields[:_MAX_LISTED_SETTINGS])
            more = ", ..." if len(fields) > _MAX_LISTED_SETTINGS else ""
            return "should be a mapping of " + (f"{settings}{more}" if fields else "names to values")
    return None


_MAX_LISTED_SETTINGS = 6


def _list_variant_tags(location: Location, tag: str) -> list[str]:
    """Return the values that select a variant of a section, if the setting selects one."""
    fields = [_get_setting_types(model).get(tag) for model in _resolve_models(location)]
    return [repr(word) for field in fields if get_origin(field) is Literal for word in get_args(field)]


@cache
def _collect_format_descriptions() -> dict[str, str]:
    """Return a description and an example of the expected format for each pattern."""

    def iter_pattern_messages(part: object) -> Iterator[tuple[str, str]]:
        if isinstance(part, dict):
            if PATTERN_MESSAGE_KEY in part:
                yield part["pattern"], part[PATTERN_MESSAGE_KEY]
            part = list(part.values())
        if isinstance(part, list):
            for each in part:
                yield from iter_pattern_messages(each)

    return dict(iter_pattern_messages(Deployment.model_json_schema()))


def _truncate_to_existing_location(location: Location, source: SourceMap) -> Location:
    """Return the part of a location that exists in the file, without the union tags that pydantic adds."""
    path: Location = ()
    for part in location:
        if (*path, part) in source.lines:
            path = (*path, part)
    return path


def shorten_value(value: str) -> str:
    return value if len(value) <= 60 else f"{value[:57]}..."  # noqa: PLR2004  maximum length of a quoted value


def _list_setting_names(location: Location) -> list[str]:
    """Return the settings of the model at a location in the file."""
    return [name for model in _resolve_models(location) for name in _get_setting_types(model)]


@cache
def _resolve_models(location: Location) -> list[type[BaseModel]]:
    models: list[type[BaseModel]] = [Deployment]
    for part in location:
        fields = [_get_setting_types(m)[str(part)] for m in models if part in _get_setting_types(m)]
        if fields:
            models = [model for field in fields for model in _iter_annotation_models(field)]
        else:
            # A list index is not a field; a union tag selects its member.
            models = [model for model in models if _has_tag(model, part)] or models
    return models


def _get_setting_types(model: type[BaseModel]) -> dict[str, object]:
    """Return the types of a model's fields by their names in the file."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _has_tag(model: type[BaseModel], tag: str | int) -> bool:
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())


def _iter_annotation_models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _iter_annotation_models(argument)
