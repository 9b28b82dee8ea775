"""Every setting of the model with its location in a document and another valid value."""

import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from voice_blueprint.file.source import Location

Key = tuple[str, ...]
"""A setting: class and name of each field from the top of the file."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A setting of a document.

    Attributes:
        key: Key of the setting.
        place: Location of the last occurrence; of the first for the discriminator of a union.
        value: Current value.
        field: Declaration of the field.
    """

    key: Key
    place: Location
    value: Any
    field: FieldInfo

    @property
    def name(self) -> str:
        """Return class and field, such as ``VadFleet.warm_up_s``."""
        return self.key[-1]

    def __str__(self) -> str:
        return ".".join(map(str, self.place))


def _models(annotation: object) -> list[type[BaseModel]]:
    """Return the models of a field's type."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _models(get_args(annotation)[0])
    if origin in (Union, types.UnionType, tuple):
        return [model for argument in get_args(annotation) for model in _models(argument)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def _step(model: type[BaseModel], name: str) -> str:
    return f"{model.__name__}.{model.model_fields[name].alias or name}"


def _discriminators(field: FieldInfo) -> set[str]:
    """Return the names of the fields that distinguish a union's members."""
    models = _models(field.annotation)
    if len(models) < 2:
        return set()
    return {
        name for model in models for name, each in model.model_fields.items() if get_origin(each.annotation) is Literal
        and len(get_args(each.annotation)) == 1
    }  # fmt: skip


REPEATED_MODEL = "Aws.other_regions"
"""Field that repeats sections of the file; `tests/stacks/aws/test_regions.py` changes each."""


def declared_settings(model: type[BaseModel], above: Key = ()) -> Iterator[Key]:
    """Yield every setting of a model; a union's discriminator is one setting of the field with the union."""
    for name, field in model.model_fields.items():
        key = (*above, _step(model, name))
        if key[-1] == REPEATED_MODEL:
            continue
        discriminators = _discriminators(field)
        for discriminator in discriminators:
            yield (*key, discriminator)
        models = _models(field.annotation)
        for inner in models:
            yield from (
                each for each in declared_settings(inner, key) if each[-1].partition(".")[2] not in discriminators
            )
        if not models:
            yield key


def found(value: BaseModel) -> Iterator[Setting]:
    """Yield every setting with a value in a loaded document, once per key, and each member of mappings."""
    settings: dict[Key, list[Setting]] = {}
    for setting in _each(value, (), ()):
        settings.setdefault(setting.key, []).append(setting)
    for key, places in settings.items():
        if len({setting.place[:-1] for setting in places}) == 1:
            yield from places
        else:
            yield places[0] if "." not in key[-1] else places[-1]


def _each(value: BaseModel, key: Key, location: Location, discriminators: Collection[str] = ()) -> Iterator[Setting]:
    for name, field in type(value).model_fields.items():
        at = (*key, name) if name in discriminators else (*key, _step(type(value), name))
        here, inner = (*location, field.alias or name), getattr(value, name)
        if _models(field.annotation):
            members = enumerate(inner) if isinstance(inner, tuple) else [(None, inner)]
            for index, member in members:
                if member is not None:
                    yield from _each(member, at, here if index is None else (*here, index), _discriminators(field))
        elif isinstance(inner, dict):
            yield from (Setting(at, (*here, each), held, field) for each, held in inner.items())
        elif inner is not None and inner != ():
            yield Setting(at, here, inner, field)


def _bound(field: FieldInfo, name: str) -> float | None:
    return next((getattr(each, name) for each in field.metadata if hasattr(each, name)), None)


def another_value(setting: Setting) -> object:
    """Return another valid value, as written in a document.

    Raises:
        LookupError: The type does not determine another value, so one must be listed.
    """
    value = setting.value
    match value:
        case bool():
            return not value
        case Enum():
            members = list(type(value))
            return members[(members.index(value) + 1) % len(members)].value
        case int() | float():
            choices = get_args(setting.field.annotation)
            if get_origin(setting.field.annotation) is Literal:
                return choices[(choices.index(value) + 1) % len(choices)]
            most = _bound(setting.field, "le")
            return value + 1 if most is None or value < most else value - 1
        case str() if get_origin(setting.field.annotation) is Literal:
            choices = get_args(setting.field.annotation)
            return choices[(choices.index(value) + 1) % len(choices)]
    raise LookupError(f"{setting.name} at {setting}: list another value than {value!r}")
