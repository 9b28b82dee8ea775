"""Reads recipes, which specify where the source of each distribution defines the contents of its table.

If a release moves a definition, ``python -m tools.engine_tables`` stops and reports the line of recipes.yaml to change.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import yaml
from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Recipe:
    """Source locations from which the table of one distribution is generated.

    Attributes:
        commands: Functions that add the flags of a sub-command, by name.
        flexible: Whether the parser is vLLM's own, with dotted flags.
        extends: Engine whose table also applies.
        config_folder: Folder of the configuration classes of JSON-valued flags.
        configs: Additional configuration classes, by their full names.
        not_configs: Classes that only the engine itself fills in.
        connectors: Class and function that register a connector, by kind; the class may be "".
        connector_settings: Prefix of a connector's own settings.
        metrics: Prefixes of the metrics.
        endpoints: Folders or files whose routes are served.
        kernels: Function that selects an attention kernel.
        environment: Function of ``offered.VARIABLE_FINDER_BY_KIND`` that finds the environment variables and their
            defaults, with its arguments; later functions take precedence.
        registries: Function that registers names, by the function that lists them.
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


_RECIPES_YAML = Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8")
RECIPES: Mapping[str, Recipe] = TypeAdapter(dict[str, Recipe]).validate_python(yaml.safe_load(_RECIPES_YAML))
"""Recipes by name in the engine catalogue. An engine without a recipe has no table."""
