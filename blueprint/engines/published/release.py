"""The tables of published releases: flags, settings, connectors, metrics, endpoints, kernels, environment variables."""

import functools
from importlib import resources
from typing import Literal

from pydantic import Field, JsonValue

from blueprint.base import Model

SettingType = Literal["str", "int", "float", "size", "size-or-auto", "bool", "switch", "json", "json-or-str", "any"]
"""``size``: a whole number that may end in k, m, g or t (1000s) or K, M, G or T (1024s); ``switch``: takes no value;
``bool``: as a flag ``--x`` or ``--no-x``, as a field ``true`` or ``false``."""


class Setting(Model):
    """One command-line flag (its name starts with a dash), positional argument or field of a configuration class."""

    name: str
    aliases: tuple[str, ...] = ()
    type: SettingType = "str"
    choices: tuple[str | int | float, ...] = ()
    """Values that the release itself has, where it lists them."""
    extensible: bool = False
    """Whether a plug-in may add to ``choices``."""
    any_case: bool = False
    """Whether ``choices`` are compared without regard to case."""
    config: str | None = None
    """Configuration class that a JSON value is checked against."""
    nargs: int | Literal["?", "*", "+"] | None = None
    repeats: bool = False
    """Whether the flag may be given more than once."""
    nullable: bool = False
    default: JsonValue = None
    """Null also where the default is worked out when the engine starts."""
    off: str | None = None
    """Second flag that turns a ``bool`` off, beside ``--no-x``."""


class Command(Model):
    """One sub-command."""

    flexible: bool = False
    """Whether its parser reads ``_`` in flags as ``-``, and ``--x.y value`` as a key of the JSON value of ``--x``."""
    read_from: tuple[str, ...] = ()
    """Files that the flags stand in."""
    not_followed: tuple[str, ...] = ()
    """Functions that add flags too and could not be read."""
    flags: tuple[Setting, ...] = ()

    def flag(self, name: str) -> Setting | None:
        """Return the flag that has a name or an alias; a boolean one for its negative forms too."""
        return self.by_name.get(name)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Every spelling of every flag."""
        return tuple(self.by_name)

    @functools.cached_property
    def by_name(self) -> dict[str, Setting]:
        """Flags by every spelling."""
        found: dict[str, Setting] = {}
        for flag in self.flags:
            names = [flag.name, *flag.aliases]
            negatives = [f"--no-{name[2:]}" for name in names if flag.type == "bool" and name.startswith("--")]
            for name in [*names, *negatives, *filter(None, [flag.off])]:
                found.setdefault(name, flag)
        return found


class PublishedMetric(Model):
    """One metric."""

    name: str
    """As it stands in the Prometheus exposition, before a histogram's ``_bucket``, ``_sum`` and ``_count``."""
    kind: Literal["counter", "gauge", "histogram", "summary", "info", "unknown"]


class Endpoint(Model):
    """One HTTP or WebSocket endpoint."""

    method: Literal["GET", "POST", "PUT", "DELETE", "PATCH", "WEBSOCKET"]
    path: str
    """Parameters stand in braces."""


class Kernel(Model):
    """One attention kernel that the release chooses from, for models without latent attention."""

    name: str
    blocks: tuple[int, ...]
    """Tokens; a block of the KV cache is a multiple of one of them."""
    kv_types: dict[str, tuple[int, ...]]
    """Major compute capabilities of the GPUs on which it takes a type of KV cache, by ``--kv-cache-dtype``; where the
    release decides when it runs, they count."""


class Origin(Model):
    """Which published file a table was read from."""

    distribution: str
    version: str
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    repository: str | None = None
    commit: str | None = None


class EngineTable(Model):
    """What one release accepts and offers."""

    origin: Origin
    extends: str | None = None
    """Table of the engine that this one adds to: flags, settings and the rest of that one hold here too."""
    commands: dict[str, Command] = Field(default_factory=dict)
    configs: dict[str, tuple[Setting, ...]] = Field(default_factory=dict)
    connectors: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Names by what they connect: ``kv``, ``ec`` (encoder cache), ``stage``, ``l2`` (LMCache's second level)."""
    connector_settings: tuple[str, ...] = ()
    """Keys of a connector's extra configuration that have a prefix of their own, such as ``lmcache.mp.port``."""
    metrics: tuple[PublishedMetric, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    environment: dict[str, JsonValue] = Field(default_factory=dict)
    """Variables and, where the source states them, their defaults."""

    @property
    def release(self) -> str:
        """The distribution and its version, as a message names them."""
        return f"{self.origin.distribution} {self.origin.version}"

    def on_top_of(self, base: "EngineTable") -> "EngineTable":
        """Return this table with everything that the base has and this one does not change."""
        names = {*base.commands, *self.commands}
        return self.model_copy(
            update={
                "commands": {name: _merged(base.commands.get(name), self.commands.get(name)) for name in names},
                "configs": base.configs | self.configs,
                "connectors": base.connectors | self.connectors,
                "connector_settings": (*base.connector_settings, *self.connector_settings),
                "metrics": (*self.metrics, *base.metrics),
                "endpoints": (*self.endpoints, *base.endpoints),
                "kernels": (*self.kernels, *base.kernels),
                "environment": base.environment | self.environment,
            }
        )


def _merged(base: Command | None, own: Command | None) -> Command:
    if base is None or own is None:
        return own or base or Command()
    replaced = {flag.name for flag in own.flags}
    flags = (*own.flags, *(flag for flag in base.flags if flag.name not in replaced))
    return own.model_copy(update={"flags": flags, "flexible": own.flexible or base.flexible})


def read(text: str) -> EngineTable:
    """Return a table from its JSON text, alone.

    Raises:
        pydantic.ValidationError: The text is no table.
    """
    return EngineTable.model_validate_json(text)


@functools.cache
def published(name: str) -> EngineTable:
    """Return what an engine's release accepts and offers, with all of the release that it extends.

    Args:
        name: As in the catalogue of engines.

    Raises:
        FileNotFoundError: There is no table of it.
    """
    file = resources.files(__package__).joinpath("tables", f"{name}.json")
    table = read(file.read_text(encoding="utf-8"))
    return table.on_top_of(published(table.extends)) if table.extends else table
