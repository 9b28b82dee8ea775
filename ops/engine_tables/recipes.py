"""Where each distribution keeps what its table is made of.

A release that moves something makes ``python -m ops.engine_tables`` stop and name the line of recipes.yaml to change.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import yaml
from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Recipe:
    """What to read in one distribution.

    Attributes:
        commands: By name, the function that adds the flags of a sub-command.
        flexible: Whether the parser is vLLM's own, with dotted flags.
        extends: Engine whose table holds here too.
        config_folder: Where the configuration classes of JSON-valued flags stand.
        configs: Further configuration classes, by their full names.
        not_configs: Classes that only the engine itself fills in.
        connectors: By kind, class and function that register a connector; the class may be "".
        connector_settings: Prefix of a connector's own settings.
        metrics: Prefixes of the metrics.
        endpoints: Folders, or files, whose routes are served.
        kernels: Function that chooses from the attention kernels.
        environment: What of ``offered.VARIABLES`` finds the environment variables and their defaults, with what it is
            given; later ones know better.
        registries: By function that lists names, the function that registers them.
    """

    commands: Mapping[str, str] = field(default_factory=dict)
    flexible: bool = False
    extends: str | None = None
    config_folder: str = ""
    configs: tuple[str, ...] = ()
    not_configs: frozenset[str] = frozenset()
    connectors: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    connector_settings: str = ""
    metrics: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    kernels: str = ""
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    registries: Mapping[str, str] = field(default_factory=dict)


_TEXT = Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8")
RECIPES: Mapping[str, Recipe] = TypeAdapter(dict[str, Recipe]).validate_python(yaml.safe_load(_TEXT))
"""By name in the catalogue of engines; what has no recipe has no table."""
