"""Changing any setting changes a template of AWS or Azure.

A synthesis takes seconds, so many settings are changed at once: each has its other value in six of twelve runs. The
effect of a single setting therefore appears in exactly its six runs, or vanishes in them. No two settings are changed
in the same six runs, nor is one changed in exactly the runs in which another is not.
"""

import itertools
import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.blueprint.documents import Edits, edit_document, load_text, parse_yaml, text
from tests.settings.settings import Key, Setting, another_value, declared_settings, found
from tests.settings.values import (
    CHECKED_ONLY,
    COMBINED_EDITS,
    EXPLICIT_VALUES,
    INFORMATIONAL,
    OTHER_VALUES,
    SEPARATE_EDITS,
    Unseen,
)
from tests.stacks.azure.manifests import workloads
from tests.stacks.azure.recorded import cluster, inputs
from voice_blueprint import Deployment, checks
from voice_blueprint.contract.images import Image
from voice_stacks.aws.app import create_app

IMAGES: Key = ("Deployment.images",)
BASE_TEXT = edit_document(
    {"images": {image.value: f"sha256:{number:064x}" for number, image in enumerate(Image, start=1)}},
    (Path(__file__).parent / "everything.yaml").read_text(encoding="utf-8"),
)
DOCUMENT = text(
    Deployment.model_validate_json(json.dumps(parse_yaml(BASE_TEXT))).model_dump(mode="json", exclude_none=True)
)
"""The written document and every default."""
RUNS = 12
CODES = [{0, *others} for others in itertools.combinations(range(1, RUNS), RUNS // 2 - 1)]
"""The runs of each setting. All contain the first run, so that none is the complement of another."""

Words = set[tuple[str, ...]]


def words_in(value: Any, *place: str) -> Iterator[tuple[str, ...]]:  # noqa: ANN401  any value in a template
    """Yield each word of a template with its location; the order of lists is ignored."""
    match value:
        case dict():
            # Lists of names and values are equivalent to mappings.
            name = [str(value[key]) for key in ("Key", "Name", "name") if isinstance(value.get(key), str)]
            for key, inner in value.items():
                yield from words_in(inner, *place, *name[:1], str(key))
        case list() | tuple():
            for inner in value:
                yield from words_in(inner, *place)
        case str():
            yield from ((*place, word) for word in value.split())
        case _:
            yield (*place, repr(value))


CLOUDS = ("aws", "azure")
PROJECTS = ("cluster", "workloads")


def render_words(edits: Edits, folder: Path, *clouds: str) -> Words:
    """Return all words in the resources of some clouds, each with its location."""
    deployment = load_text(edit_document(edits, DOCUMENT), folder)
    file = (folder / "deployment.yaml").read_text(encoding="utf-8")
    words: Words = set()
    for stack in create_app(deployment, outdir=str(folder / "cdk")).synth().stacks if "aws" in clouds else ():
        tier = stack.stack_name.removeprefix(f"{deployment.name}-")
        words |= {(tier, stack.environment.name), (tier, repr(stack.termination_protection))}
        words.update(words_in(json.loads(Path(stack.template_full_path).read_text(encoding="utf-8")), tier))
    for project, graph in zip(PROJECTS, (cluster, workloads), strict=True):
        for resource in graph(file).iter_managed_resources() if "azure" in clouds else ():
            words.update(words_in(inputs(resource), project, resource.type, resource.name))
            words.add((project, resource.name, repr((resource.protect, resource.retain_on_delete))))
    return words


def join_words(words: Words) -> str:
    return "\n".join(word for *_, word in words)


def edits_for(setting: Setting) -> Edits:
    """Return the edits that give a setting another value."""
    if setting.key in COMBINED_EDITS:
        return COMBINED_EDITS[setting.key]
    if setting.key == IMAGES:
        number = list(Image).index(Image(str(setting.place[-1])))
        return {str(setting): f"sha256:{number + 100:064x}"}
    listed = {**EXPLICIT_VALUES, **OTHER_VALUES}
    value = listed[setting.name] if setting.name in listed else another_value(setting)
    if setting.name == "ScalingRule.name":
        value = f"{value}-{setting.place[1]}"
    return {str(setting): value}


def is_shown(setting: Setting) -> bool:
    return setting.name in EXPLICIT_VALUES or setting.key == IMAGES


def unseen_entry(key: Key) -> Unseen | None:
    return next((entry for ends, entry in CHECKED_ONLY.items() if ".".join(key).endswith(f".{ends}")), None)


def is_coded(setting: Setting) -> bool:
    listed = is_shown(setting) or setting.key in SEPARATE_EDITS or setting.name in INFORMATIONAL
    return not listed and unseen_entry(setting.key) is None


class Rendering:
    """The templates of the document, and of the document with settings changed.

    Attributes:
        settings: Every setting of the document.
        base: The words of its templates.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings = list(found(load_text(DOCUMENT, folder)))
        self.base = self._render({})
        coded = [setting for setting in self.settings if is_coded(setting)]
        self._codes = dict(zip(coded, CODES, strict=False))
        assert len(self._codes) == len(coded), "more settings than codes: take more runs"
        self._patterns = self._run()

    @cached_property
    def shown(self) -> str:
        """Return the words with the other values of all settings that a template repeats."""
        edits: dict[str, object] = {}
        for setting in filter(is_shown, self.settings):
            edits |= edits_for(setting)
        return join_words(self._render(edits))

    def _render(self, edits: Edits, *clouds: str) -> Words:
        """Render without checks, since only the effect of a value is tested."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "run_checks", lambda _: [])
            return render_words(edits, self._folder, *clouds or CLOUDS)

    def _run(self) -> set[frozenset[int]]:
        """Return the sets of runs in which some word appears."""
        appears: dict[tuple[str, ...], set[int]] = {}
        for run in range(RUNS):
            edits: dict[str, object] = {}
            for setting, code in self._codes.items():
                if run in code:
                    edits |= edits_for(setting)
            for word in self._render(edits):
                appears.setdefault(word, set()).add(run)
        return set(map(frozenset, appears.values()))

    def decides_something(self, setting: Setting) -> bool:
        """Return True if a word appears or disappears exactly in the runs with a setting's other value."""
        code = self._codes[setting]
        return {frozenset(code), frozenset(range(RUNS)) - code} & self._patterns != set()

    def differs(self, edits: Edits) -> bool:
        """Return True if a word appears or disappears; a section is only rendered for its cloud."""
        sections = {place.partition(".")[0] for place in edits}
        for cloud in CLOUDS:
            if sections == {cloud}:
                words = {word for word in self.base if (word[0] in PROJECTS) == (cloud == "azure")}
                return self._render(edits, cloud) != words
        return self._render(edits) != self.base


@pytest.fixture(scope="module")
def rendering(tmp_path_factory: pytest.TempPathFactory) -> Rendering:
    return Rendering(tmp_path_factory.mktemp("settings"))


KEYS = list(dict.fromkeys(declared_settings(Deployment)))


@pytest.mark.parametrize(
    "key", [key for key in KEYS if not unseen_entry(key) and key[-1] not in INFORMATIONAL], ids=".".join
)
def test_setting_reaches_a_template(key: Key, rendering: Rendering) -> None:
    if key in SEPARATE_EDITS:
        assert rendering.differs(SEPARATE_EDITS[key])
        return
    places = [setting for setting in rendering.settings if setting.key == key]
    assert places, "tests/settings/everything.yaml has no value for it"
    for setting in places:
        edits = edits_for(setting)
        if is_shown(setting):
            (value,) = edits.values()
            for word in value if isinstance(value, list) else [value]:
                assert re.search(rf"(?<!\w){re.escape(str(word))}(?!\w)", rendering.shown), word
        else:
            # A setting may only have an effect in combination with another; then it is changed separately.
            assert rendering.decides_something(setting) or rendering.differs(edits), f"no template shows {edits}"


@pytest.mark.parametrize("key", [key for key in KEYS if unseen_entry(key)], ids=".".join)
def test_setting_outside_the_templates_is_read_by_the_checks(key: Key, tmp_path: Path) -> None:
    entry = unseen_entry(key)
    assert entry is not None

    def said(edits: Edits) -> list[tuple[str, str, str | None]]:
        found = checks.run_checks(load_text(edit_document(edits, DOCUMENT), tmp_path))
        return [(each.check.id, each.violation.message, each.acceptance_reason) for each in found]

    assert said(entry.edits) != said({}), entry.by


def test_lists_of_exceptions_name_settings_that_exist() -> None:
    names = {key[-1] for key in KEYS}
    assert names >= {*EXPLICIT_VALUES, *INFORMATIONAL}
    assert names >= {*OTHER_VALUES}
    assert set(KEYS) >= {*SEPARATE_EDITS, *COMBINED_EDITS}
    assert all(any(unseen_entry(key) is entry for key in KEYS) for entry in CHECKED_ONLY.values())
