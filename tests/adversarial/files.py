"""Adversarial deployment files: valid files of both clouds with arbitrary values of arbitrary settings."""

import copy
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tests.blueprint.documents import ABSENT, AZURE_BASE, BASE, DEPLOYMENTS, load_text, parse_yaml, text
from tests.stacks.azure.manifests import DIGESTS
from voice_blueprint import Deployment, catalog
from voice_blueprint.file.source import Location

Document = dict[str, Any]
Strategy = st.SearchStrategy[Any]

EVERYTHING = (Path(__file__).parents[1] / "settings" / "everything.yaml").read_text(encoding="utf-8")
SHIPPED_DEPLOYMENTS = ("sandbox", "small", "production-us-east-1", "cells")
MAX_UNBOUNDED = 10**7
"""Maximum for fields without a bound; exceeds every bound of the model."""


@cache
def bases() -> dict[str, tuple[Document, Deployment]]:
    """Return valid documents by name, and the deployments that they load to.

    Every image has a digest, so nothing waits for one.
    """
    texts = {"a base of AWS": BASE, "a base of Azure": AZURE_BASE, "everything": EVERYTHING}
    texts |= {name: (DEPLOYMENTS / f"{name}.yaml").read_text(encoding="utf-8") for name in SHIPPED_DEPLOYMENTS}
    documents = {name: parse_yaml(each) | {"images": DIGESTS} for name, each in texts.items()}
    for document in documents.values():
        # These digests are not signed.
        unsigned = {"id": "images-signed", "reason": "made up by a test"}
        document["accepted_checks"] = [*document.get("accepted_checks", []), unsigned]
    with TemporaryDirectory() as folder:
        return {name: (each, load_text(text(each), Path(folder))) for name, each in documents.items()}


class Slot:
    """A setting and its location in a document, which need not contain it."""

    def __init__(self, place: Location, field: FieldInfo) -> None:
        self.place = place
        self.name = str(place[-1])
        self.annotation: object = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        self.required = field.is_required()

    def values(self) -> Strategy:
        """Draw values of this setting in other files, values that the type allows, or nothing."""
        drawn = [_values_for(self.annotation, self.name)]
        drawn += [st.sampled_from(known)] * 2 if (known := _known_values().get(self.name)) else []
        return st.one_of(*drawn) if self.required else st.one_of(*drawn, st.just(ABSENT))


def slots(value: BaseModel, at: Location = ()) -> Iterator[Slot]:
    """Yield every setting of a loaded document, including defaults."""
    for name, field in type(value).model_fields.items():
        here = (*at, field.alias or name)
        yield Slot(here, field)
        inner = getattr(value, name)
        for index, member in enumerate(inner) if isinstance(inner, tuple) else [(None, inner)]:
            if isinstance(member, BaseModel):
                yield from slots(member, here if index is None else (*here, index))


@cache
def _known_values() -> dict[str, list[Any]]:
    """Return the values of each setting's name in the catalogue or a valid document."""
    found: dict[str, list[Any]] = {
        "instance_type": sorted(catalog.instance_types()),
        "vm_size": sorted(catalog.vm_sizes()),
        "model": sorted(catalog.models()),
        "region": sorted(catalog.regions()),
    }
    for document, deployment in bases().values():
        for slot in slots(deployment):
            value = _value_at(document, slot.place)
            if value is not ABSENT and value not in found.setdefault(slot.name, []):
                found[slot.name].append(value)
    return found


def _value_at(document: Any, location: Location) -> Any:  # noqa: ANN401  any YAML value
    for part in location:
        if isinstance(document, dict) and part not in document:
            return ABSENT
        document = document[part]
    return document


def _values_for(annotation: Any, name: str) -> Strategy:  # noqa: ANN401  any type annotation
    """Return values that a type allows, mainly at its bounds; validators are ignored."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values_near_bounds(*arguments, name=name)
    if origin in (Union, types.UnionType):
        return st.one_of(*(_values_for(each, name) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_values_for(arguments[0], name), max_size=3)
    if origin is dict:
        return st.dictionaries(_values_for(arguments[0], name), _values_for(arguments[1], name), max_size=3)
    if issubclass(annotation, Enum):
        return st.sampled_from([each.value for each in annotation])
    if issubclass(annotation, BaseModel):
        return _values_for_model(annotation)
    return {
        types.NoneType: st.none(),
        bool: st.booleans(),
        int: st.integers(0, MAX_UNBOUNDED),
        float: st.floats(0, MAX_UNBOUNDED),
        str: st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12),
    }[annotation]


def _values_near_bounds(annotation: Any, *metadata: Any, name: str) -> Strategy:  # noqa: ANN401
    """Return numbers within and around the bounds, and strings that match a pattern."""
    pattern = next((each.pattern for each in metadata if getattr(each, "pattern", None)), None)
    if pattern:
        return st.from_regex(pattern, fullmatch=True)
    bounds = [each for inner in metadata for each in (inner.metadata if isinstance(inner, FieldInfo) else [inner])]
    if annotation in (int, float):
        said = {name: getattr(each, name) for each in bounds for name in ("ge", "gt", "le") if hasattr(each, name)}
        low, high = said.get("ge", said.get("gt", 0)), said.get("le", MAX_UNBOUNDED)
        edges = st.sampled_from([low, low + 1, high, high - 1, low - 1, high + 1])
        return st.one_of(edges, st.integers(low, high) if annotation is int else st.floats(low, high))
    if bounds != list(metadata):
        return _values_near_bounds(annotation, *bounds, name=name)
    return _values_for(annotation, name)


@cache
def _values_for_model(model: type[BaseModel]) -> Strategy:
    fields = [Slot((field.alias or name,), field) for name, field in model.model_fields.items()]
    return st.fixed_dictionaries(
        {each.name: each.values() for each in fields if each.required},
        optional={each.name: each.values() for each in fields if not each.required},
    ).map(lambda drawn: {key: value for key, value in drawn.items() if value is not ABSENT})


@dataclass(frozen=True)
class File:
    """A valid deployment file with adversarial changes.

    Attributes:
        base: Name of the valid document.
        edits: New values by location, in order.
    """

    base: str
    edits: tuple[tuple[Location, Any], ...]

    def text(self) -> str:
        """Return the text of the file without changes in sections that another change removed."""
        document = copy.deepcopy(bases()[self.base][0])
        for (*parents, last), value in self.edits:
            at: Any = document
            for part in parents:
                if isinstance(at, dict):
                    at = at.setdefault(part, {})
                else:
                    at = at[part] if isinstance(at, list) and isinstance(part, int) and part < len(at) else None
            if isinstance(at, dict) and value is ABSENT:
                at.pop(last, None)
            elif isinstance(at, dict):
                at[last] = value
        return text(document)


@st.composite
def files(draw: st.DrawFn) -> File:
    """Draw a valid file, and change one to five settings, or remove or duplicate a member of a list."""
    base = draw(st.sampled_from(sorted(bases())))
    document, loaded = bases()[base]
    edits = []
    for slot in draw(st.lists(st.sampled_from(list(slots(loaded))), min_size=1, max_size=5)):
        value = _value_at(document, slot.place)
        if isinstance(value, list) and value and draw(st.booleans()):
            index = draw(st.integers(0, len(value) - 1))
            times = draw(st.sampled_from([0, 2]))
            edits.append((slot.place, [*value[:index], *[value[index]] * times, *value[index + 1 :]]))
        else:
            edits.append((slot.place, draw(slot.values())))
    return File(base, tuple(edits))
