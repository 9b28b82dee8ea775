"""Tables of published releases: flags, settings, connectors, metrics, endpoints, kernels, environment variables."""

import functools
from importlib import resources
from typing import Literal

from pydantic import Field, JsonValue

from voice_blueprint.base import Model

SettingType = Literal["str", "int", "float", "size", "size-or-auto", "bool", "switch", "json", "json-or-str", "any"]
"""``size``: a whole number that may end in k, m, g or t (1000s) or K, M, G or T (1024s); ``switch``: a flag without a
value; ``bool``: ``--x`` or ``--no-x`` as a flag, ``true`` or ``false`` as a field."""


class Setting(Model):
    """A command-line flag (its name starts with a dash), positional argument or field of a configuration class."""

    name: str
    aliases: tuple[str, ...] = ()
    type: SettingType = "str"
    choices: tuple[str | int | float, ...] = ()
    """Permitted values, if the release lists them."""
    extensible: bool = False
    """Whether plug-ins may add ``choices``."""
    any_case: bool = False
    """Whether ``choices`` are case-insensitive."""
    config: str | None = None
    """Configuration class for the validation of a JSON value."""
    nargs: int | Literal["?", "*", "+"] | None = None
    repeats: bool = False
    """Whether the flag can be repeated."""
    nullable: bool = False
    default: JsonValue = None
    """Also null if the default is determined at start-up."""
    off: str | None = None
    """Flag that disables a ``bool``, in addition to ``--no-x``."""


class Command(Model):
    """A sub-command."""

    flexible: bool = False
    """Whether its parser treats ``_`` in flags as ``-``, and ``--x.y value`` as a key of the JSON value of ``--x``."""
    read_from: tuple[str, ...] = ()
    """Files that define the flags."""
    unparsed_functions: tuple[str, ...] = ()
    """Functions that add flags but could not be parsed."""
    flags: tuple[Setting, ...] = ()

    def find_flag(self, name: str) -> Setting | None:
        """Return the flag with a name, an alias, or the negative form of a boolean flag."""
        return self.flags_by_name.get(name)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """All spellings of all flags."""
        return tuple(self.flags_by_name)

    @functools.cached_property
    def flags_by_name(self) -> dict[str, Setting]:
        """Flags by their spellings."""
        results: dict[str, Setting] = {}
        for flag in self.flags:
            names = [flag.name, *flag.aliases]
            negatives = [f"--no-{name[2:]}" for name in names if flag.type == "bool" and name.startswith("--")]
            for name in [*names, *negatives, *filter(None, [flag.off])]:
                results.setdefault(name, flag)
        return results


class PublishedMetric(Model):
    """A metric."""

    name: str
    """Name in the Prometheus exposition, without a histogram's ``_bucket``, ``_sum`` and ``_count``."""
    kind: Literal["counter", "gauge", "histogram", "summary", "info", "unknown"]


class Endpoint(Model):
    """An HTTP or WebSocket endpoint."""

    method: Literal["GET", "POST", "PUT", "DELETE", "PATCH", "WEBSOCKET"]
    path: str
    """Parameters are in braces."""


class AttentionKernel(Model):
    """An attention kernel that the release can select for models without latent attention."""

    name: str
    blocks: tuple[int, ...]
    """Tokens; the block size of the KV cache is a multiple of one of them."""
    kv_types: dict[str, tuple[int, ...]]
    """Major compute capabilities on which the kernel supports a KV cache type, by ``--kv-cache-dtype``; those that the
    release decides at run time are included."""


class PublishedFile(Model):
    """The published file from which a table was generated."""

    distribution: str
    version: str
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class EngineTable(Model):
    """Options and metrics of one release."""

    origin: PublishedFile
    extends: str | None = None
    """Table of the engine that this one extends; its flags, settings and other entries apply as well."""
    commands: dict[str, Command] = Field(default_factory=dict)
    configs: dict[str, tuple[Setting, ...]] = Field(default_factory=dict)
    connectors: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Names by their target: ``kv``, ``ec`` (encoder cache), ``stage``, ``l2`` (LMCache's second tier)."""
    connector_settings: tuple[str, ...] = ()
    """Prefixed keys of a connector's extra configuration, such as ``lmcache.mp.port``."""
    metrics: tuple[PublishedMetric, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    kernels: tuple[AttentionKernel, ...] = ()
    environment: dict[str, JsonValue] = Field(default_factory=dict)
    """Variables with their defaults, if the source contains them."""

    @property
    def release(self) -> str:
        """Name and version of the distribution, for messages."""
        return f"{self.origin.distribution} {self.origin.version}"

    def merge_with_base(self, base: "EngineTable") -> "EngineTable":
        """Return this table merged with its base. Entries of this table take precedence."""
        names = {*base.commands, *self.commands}
        return self.model_copy(
            update={
                "commands": {name: _merge_commands(base.commands.get(name), self.commands.get(name)) for name in names},
                "configs": base.configs | self.configs,
                "connectors": base.connectors | self.connectors,
                "connector_settings": (*base.connector_settings, *self.connector_settings),
                "metrics": (*self.metrics, *base.metrics),
                "endpoints": (*self.endpoints, *base.endpoints),
                "kernels": (*self.kernels, *base.kernels),
                "environment": base.environment | self.environment,
            }
        )


def _merge_commands(base: Command | None, override: Command | None) -> Command:
    if base is None or override is None:
        return override or base or Command()
    replaced = {flag.name for flag in override.flags}
    flags = (*override.flags, *(flag for flag in base.flags if flag.name not in replaced))
    return override.model_copy(update={"flags": flags, "flexible": override.flexible or base.flexible})


def parse_engine_table(text: str) -> EngineTable:
    """Parse a table from its JSON text, without its base.

    Raises:
        pydantic.ValidationError: The text is not a valid table.
    """
    return EngineTable.model_validate_json(text)


@functools.cache
def load_published_table(name: str) -> EngineTable:
    """Return the options and metrics of an engine's release, including those of the release that it extends.

    Args:
        name: Name in the catalogue of engines.

    Raises:
        FileNotFoundError: The engine has no table.
    """
    file = resources.files(__package__).joinpath("tables", f"{name}.json")
    table = parse_engine_table(file.read_text(encoding="utf-8"))
    return table.merge_with_base(load_published_table(table.extends)) if table.extends else table
