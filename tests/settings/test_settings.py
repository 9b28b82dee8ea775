"""Every setting reaches a template: each is changed, and the change is looked for in what AWS and Azure would get.

A synthesis costs seconds, so many settings are changed at once. In each of ten runs half of the settings have their
other value, and no two settings are changed in the same five runs. What a setting alone decides therefore appears in
exactly its five runs, or vanishes in them.
"""

import itertools
import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from blueprint import Deployment, checks
from blueprint.contract.images import Image
from stacks.aws.app import make_app
from tests.blueprint.documents import Edits, edited, load_text, parsed, text
from tests.settings.settings import Key, Setting, another, declared, found
from tests.settings.values import ALONE, OTHER, SHOWN, UNREAD, UNSEEN, WITH_OTHERS, Unseen
from tests.stacks.azure.manifests import workloads
from tests.stacks.azure.recorded import cluster, inputs

IMAGES: Key = ("Deployment.images",)
WRITTEN = edited(
    {"images": {image.value: f"sha256:{number:064x}" for number, image in enumerate(Image, start=1)}},
    (Path(__file__).parent / "everything.yaml").read_text(encoding="utf-8"),
)
DOCUMENT = text(Deployment.model_validate_json(json.dumps(parsed(WRITTEN))).model_dump(mode="json", exclude_none=True))
"""The written document and every default."""
RUNS = 10
CODES = [set(code) for code in itertools.combinations(range(RUNS), RUNS // 2)]

Words = set[tuple[str, ...]]


def words_of(value: Any, *place: str) -> Iterator[tuple[str, ...]]:  # noqa: ANN401  whatever a template can hold
    """Yield each word of a template with its place; of a list the order is left out."""
    match value:
        case dict():
            # Lists of names and values are mappings by another spelling.
            name = [str(value[key]) for key in ("Key", "Name", "name") if isinstance(value.get(key), str)]
            for key, inner in value.items():
                yield from words_of(inner, *place, *name[:1], str(key))
        case list() | tuple():
            for inner in value:
                yield from words_of(inner, *place)
        case str():
            yield from ((*place, word) for word in value.split())
        case _:
            yield (*place, repr(value))


CLOUDS = ("aws", "azure")
PROJECTS = ("cluster", "workloads")


def rendered(edits: Edits, folder: Path, *clouds: str) -> Words:
    """Return all words of some clouds' resources, each with its place."""
    deployment = load_text(edited(edits, DOCUMENT), folder)
    file = (folder / "deployment.yaml").read_text(encoding="utf-8")
    words: Words = set()
    for stack in make_app(deployment, outdir=str(folder / "cdk")).synth().stacks if "aws" in clouds else ():
        tier = stack.stack_name.removeprefix(f"{deployment.name}-")
        words |= {(tier, stack.environment.name), (tier, repr(stack.termination_protection))}
        words.update(words_of(json.loads(Path(stack.template_full_path).read_text(encoding="utf-8")), tier))
    for project, graph in zip(PROJECTS, (cluster, workloads), strict=True):
        for resource in graph(file).managed() if "azure" in clouds else ():
            words.update(words_of(inputs(resource), project, resource.type, resource.name))
            words.add((project, resource.name, repr((resource.protect, resource.retain_on_delete))))
    return words


def text_of(words: Words) -> str:
    return "\n".join(word for *_, word in words)


def edits_of(setting: Setting) -> Edits:
    """Return what gives a setting another value."""
    if setting.key in WITH_OTHERS:
        return WITH_OTHERS[setting.key]
    if setting.key == IMAGES:
        number = list(Image).index(Image(str(setting.place[-1])))
        return {str(setting): f"sha256:{number + 100:064x}"}
    listed = {**SHOWN, **OTHER}
    value = listed[setting.name] if setting.name in listed else another(setting)
    if setting.name == "ScalingRule.name":
        value = f"{value}-{setting.place[1]}"
    return {str(setting): value}


def is_shown(setting: Setting) -> bool:
    return setting.name in SHOWN or setting.key == IMAGES


def unseen(key: Key) -> Unseen | None:
    return next((entry for ends, entry in UNSEEN.items() if ".".join(key).endswith(f".{ends}")), None)


def is_coded(setting: Setting) -> bool:
    listed = is_shown(setting) or setting.key in ALONE or setting.name in UNREAD
    return not listed and unseen(setting.key) is None


class Rendering:
    """What templates say of the document, and of the document with settings changed.

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
        """The words with the other values of all settings that a template repeats."""
        edits: dict[str, object] = {}
        for setting in filter(is_shown, self.settings):
            edits |= edits_of(setting)
        return text_of(self._render(edits))

    def _render(self, edits: Edits, *clouds: str) -> Words:
        """Render without the checks: what counts here is what a value does, not whether it is wise."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checks, "run", lambda _: [])
            return rendered(edits, self._folder, *clouds or CLOUDS)

    def _run(self) -> set[frozenset[int]]:
        """Return the sets of runs that some word appears in."""
        appears: dict[tuple[str, ...], set[int]] = {}
        for run in range(RUNS):
            edits: dict[str, object] = {}
            for setting, code in self._codes.items():
                if run in code:
                    edits |= edits_of(setting)
            for word in self._render(edits):
                appears.setdefault(word, set()).add(run)
        return set(map(frozenset, appears.values()))

    def decides_something(self, setting: Setting) -> bool:
        """Whether a word comes or goes with a setting's other value and with nothing else."""
        code = self._codes[setting]
        return {frozenset(code), frozenset(range(RUNS)) - code} & self._patterns != set()

    def differs(self, edits: Edits) -> bool:
        """Whether a word comes or goes; an edit of one cloud's half is looked for there alone."""
        sections = {place.partition(".")[0] for place in edits}
        for cloud in CLOUDS:
            if sections == {cloud}:
                words = {word for word in self.base if (word[0] in PROJECTS) == (cloud == "azure")}
                return self._render(edits, cloud) != words
        return self._render(edits) != self.base


@pytest.fixture(scope="module")
def rendering(tmp_path_factory: pytest.TempPathFactory) -> Rendering:
    return Rendering(tmp_path_factory.mktemp("settings"))


KEYS = list(dict.fromkeys(declared(Deployment)))


@pytest.mark.parametrize("key", [key for key in KEYS if not unseen(key) and key[-1] not in UNREAD], ids=".".join)
def test_setting_reaches_a_template(key: Key, rendering: Rendering) -> None:
    if key in ALONE:
        assert rendering.differs(ALONE[key])
        return
    places = [setting for setting in rendering.settings if setting.key == key]
    assert places, "tests/settings/everything.yaml has no value for it"
    for setting in places:
        edits = edits_of(setting)
        if is_shown(setting):
            (value,) = edits.values()
            for word in value if isinstance(value, list) else [value]:
                assert re.search(rf"(?<!\w){re.escape(str(word))}(?!\w)", rendering.shown), word
        else:
            # One that decides nothing alone may decide together with another: then its change alone shows.
            assert rendering.decides_something(setting) or rendering.differs(edits), f"no template shows {edits}"


@pytest.mark.parametrize("key", [key for key in KEYS if unseen(key)], ids=".".join)
def test_setting_that_no_template_has_is_read_by_the_checks(key: Key, tmp_path: Path) -> None:
    entry = unseen(key)
    assert entry is not None

    def said(edits: Edits) -> list[tuple[str, str, str | None]]:
        found = checks.run(load_text(edited(edits, DOCUMENT), tmp_path))
        return [(each.check.id, each.violation.message, each.accepted_because) for each in found]

    assert said(entry.edits) != said({}), entry.by


def test_lists_of_exceptions_name_settings_that_exist() -> None:
    names = {key[-1] for key in KEYS}
    assert names >= {*SHOWN, *UNREAD}
    assert names >= {*OTHER}
    assert set(KEYS) >= {*ALONE, *WITH_OTHERS}
    assert all(any(unseen(key) is entry for key in KEYS) for entry in UNSEEN.values())
