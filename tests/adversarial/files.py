"""Deployment files as an adversary would write them: sound ones of both clouds, with anything in anybody's place."""

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

from blueprint import Deployment, catalog
from blueprint.file.source import Location
from tests.blueprint.documents import ABSENT, AZURE_BASE, BASE, DEPLOYMENTS, load_text, parsed, text
from tests.stacks.azure.manifests import DIGESTS

Document = dict[str, Any]
Strategy = st.SearchStrategy[Any]

EVERYTHING = (Path(__file__).parents[1] / "settings" / "everything.yaml").read_text(encoding="utf-8")
SHIPPED = ("sandbox", "small", "production-us-east-1", "cells")
FAR = 10**7
"""Beyond what any bound of the model allows, where it has none of its own."""


@cache
def bases() -> dict[str, tuple[Document, Deployment]]:
    """Return sound documents by name, with a digest for every image so that nothing waits, and what each loads to."""
    texts = {"a base of AWS": BASE, "a base of Azure": AZURE_BASE, "everything": EVERYTHING}
    texts |= {name: (DEPLOYMENTS / f"{name}.yaml").read_text(encoding="utf-8") for name in SHIPPED}
    documents = {name: parsed(each) | {"images": DIGESTS} for name, each in texts.items()}
    for document in documents.values():
        # Nobody has signed these digests.
        unsigned = {"id": "images-signed", "reason": "made up by a test"}
        document["accepted_checks"] = [*document.get("accepted_checks", []), unsigned]
    with TemporaryDirectory() as folder:
        return {name: (each, load_text(text(each), Path(folder))) for name, each in documents.items()}


class Slot:
    """A setting and where it may stand in a document, whether it does or not."""

    def __init__(self, place: Location, field: FieldInfo) -> None:
        self.place = place
        self.name = str(place[-1])
        self.annotation: object = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        self.required = field.is_required()

    def values(self) -> Strategy:
        """Draw what other files have in this place, what the type allows, or nothing."""
        drawn = [_of(self.annotation, self.name)]
        drawn += [st.sampled_from(known)] * 2 if (known := _known().get(self.name)) else []
        return st.one_of(*drawn) if self.required else st.one_of(*drawn, st.just(ABSENT))


def slots(value: BaseModel, at: Location = ()) -> Iterator[Slot]:
    """Yield every setting of a loaded document, those included that only have their default."""
    for name, field in type(value).model_fields.items():
        here = (*at, field.alias or name)
        yield Slot(here, field)
        inner = getattr(value, name)
        for index, member in enumerate(inner) if isinstance(inner, tuple) else [(None, inner)]:
            if isinstance(member, BaseModel):
                yield from slots(member, here if index is None else (*here, index))


@cache
def _known() -> dict[str, list[Any]]:
    """Return by name of a setting what the catalogue or a sound document has there."""
    found: dict[str, list[Any]] = {
        "instance_type": sorted(catalog.instance_types()),
        "vm_size": sorted(catalog.vm_sizes()),
        "model": sorted(catalog.models()),
        "region": sorted(catalog.regions()),
    }
    for document, deployment in bases().values():
        for slot in slots(deployment):
            value = _at(document, slot.place)
            if value is not ABSENT and value not in found.setdefault(slot.name, []):
                found[slot.name].append(value)
    return found


def _at(document: Any, place: Location) -> Any:  # noqa: ANN401  whatever YAML can hold
    for part in place:
        if isinstance(document, dict) and part not in document:
            return ABSENT
        document = document[part]
    return document


def _of(annotation: Any, name: str) -> Strategy:  # noqa: ANN401  whatever a model declares
    """Return what a type allows, at its bounds above all; what a validator says besides is not asked."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _within(*arguments, name=name)
    if origin in (Union, types.UnionType):
        return st.one_of(*(_of(each, name) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_of(arguments[0], name), max_size=3)
    if origin is dict:
        return st.dictionaries(_of(arguments[0], name), _of(arguments[1], name), max_size=3)
    if issubclass(annotation, Enum):
        return st.sampled_from([each.value for each in annotation])
    if issubclass(annotation, BaseModel):
        return _model(annotation)
    return {
        types.NoneType: st.none(),
        bool: st.booleans(),
        int: st.integers(0, FAR),
        float: st.floats(0, FAR),
        str: st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12),
    }[annotation]


def _within(annotation: Any, *metadata: Any, name: str) -> Strategy:  # noqa: ANN401
    """Return numbers within bounds and beside them, and texts of a pattern."""
    pattern = next((each.pattern for each in metadata if getattr(each, "pattern", None)), None)
    if pattern:
        return st.from_regex(pattern, fullmatch=True)
    bounds = [each for inner in metadata for each in (inner.metadata if isinstance(inner, FieldInfo) else [inner])]
    if annotation in (int, float):
        said = {name: getattr(each, name) for each in bounds for name in ("ge", "gt", "le") if hasattr(each, name)}
        low, high = said.get("ge", said.get("gt", 0)), said.get("le", FAR)
        edges = st.sampled_from([low, low + 1, high, high - 1, low - 1, high + 1])
        return st.one_of(edges, st.integers(low, high) if annotation is int else st.floats(low, high))
    if bounds != list(metadata):
        return _within(annotation, *bounds, name=name)
    return _of(annotation, name)


@cache
def _model(model: type[BaseModel]) -> Strategy:
    fields = [Slot((field.alias or name,), field) for name, field in model.model_fields.items()]
    return st.fixed_dictionaries(
        {each.name: each.values() for each in fields if each.required},
        optional={each.name: each.values() for each in fields if not each.required},
    ).map(lambda drawn: {key: value for key, value in drawn.items() if value is not ABSENT})


@dataclass(frozen=True)
class File:
    """A deployment file: a sound one, and what an adversary changed.

    Attributes:
        base: Name of the sound one.
        edits: New values by place, in this order.
    """

    base: str
    edits: tuple[tuple[Location, Any], ...]

    def text(self) -> str:
        """Return what stands in the file; a change in a section that another change took away is left out."""
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
    """Draw a sound file, and change one to five of its settings; or take a member of a list out, or in again."""
    base = draw(st.sampled_from(sorted(bases())))
    document, loaded = bases()[base]
    edits = []
    for slot in draw(st.lists(st.sampled_from(list(slots(loaded))), min_size=1, max_size=5)):
        value = _at(document, slot.place)
        if isinstance(value, list) and value and draw(st.booleans()):
            index = draw(st.integers(0, len(value) - 1))
            times = draw(st.sampled_from([0, 2]))
            edits.append((slot.place, [*value[:index], *[value[index]] * times, *value[index + 1 :]]))
        else:
            edits.append((slot.place, draw(slot.values())))
    return File(base, tuple(edits))
