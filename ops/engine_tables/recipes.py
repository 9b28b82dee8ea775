"""Where each distribution keeps what its table is made of.

A release that moves something makes ``python -m ops.engine_tables`` stop and name the recipe's line to change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ops.engine_tables.offered import variables_declared, variables_listed, variables_of_settings, variables_read
from ops.engine_tables.values import Reader


@dataclass(frozen=True)
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
        environment: What finds the environment variables and their defaults; later ones know better.
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
    environment: tuple[Callable[[Reader], dict[str, object]], ...] = ()
    registries: Mapping[str, str] = field(default_factory=dict)


VLLM = Recipe(
    commands={"serve": "vllm.entrypoints.cli.serve.ServeSubcommand.subparser_init"},
    flexible=True,
    config_folder="vllm/config/",
    configs=("vllm.config.SchedulerConfig",),
    not_configs=frozenset({"ModelConfig", "ParallelConfig", "VllmConfig"}),
    connectors={
        "kv": ("KVConnectorFactory", "register_connector"),
        "ec": ("ECConnectorFactory", "register_connector"),
    },
    connector_settings="lmcache.mp.",
    metrics=("vllm:",),
    endpoints=("vllm/entrypoints/",),
    environment=(
        partial(variables_read, prefix="VLLM_"),
        partial(variables_declared, table="vllm.envs"),
    ),
)
OMNI = Recipe(
    commands={"serve": "vllm_omni.entrypoints.cli.serve.OmniServeCommand.subparser_init"},
    flexible=True,
    extends="vllm-for-omni",
    configs=("vllm_omni.config.stage_config.DeployConfig",),
    connectors={"stage": ("OmniConnectorFactory", "register_connector")},
    metrics=("vllm_omni:",),
    endpoints=("vllm_omni/entrypoints/openai/",),
    environment=(
        partial(variables_read, prefix="VLLM_OMNI_"),
        partial(variables_listed, dotted="vllm_omni.config.environment_variable_inventory._PUBLIC_OMNI"),
    ),
)
LMCACHE = Recipe(
    commands={"server": "lmcache.cli.commands.server.ServerCommand.add_arguments"},
    configs=(
        "lmcache.v1.multiprocess.config.MPServerConfig",
        "lmcache.v1.multiprocess.config.HTTPFrontendConfig",
        "lmcache.v1.distributed.config.StorageManagerConfig",
    ),
    connectors={"l2": ("", "register_l2_adapter_type")},
    connector_settings="lmcache.mp.",
    metrics=("lmcache_mp.", "lmcache:"),
    endpoints=(
        "lmcache/v1/multiprocess/http_apis/",
        "lmcache/v1/internal_api_server/common/",
        "lmcache/v1/internal_api_server/vllm/version_api.py",
    ),
    environment=(
        partial(variables_read, prefix="LMCACHE_"),
        partial(variables_of_settings, prefix="LMCACHE_", mapping="lmcache.v1.config._CONFIG_DEFINITIONS"),
    ),
    registries={
        "get_registered_store_policies": "register_store_policy",
        "get_registered_prefetch_policies": "register_prefetch_policy",
    },
)
ROUTER = Recipe(commands={"": "vllm_router.parsers.parser.parse_args"})
PD_ROUTER = Recipe(commands={"": "vllm_router.router_args.RouterArgs.add_cli_args"})

RECIPES: Mapping[str, Recipe] = {
    "vllm": VLLM,
    "vllm-for-omni": VLLM,
    "vllm-omni": OMNI,
    "lmcache": LMCACHE,
    "router": ROUTER,
    "pd-router": PD_ROUTER,
}
"""By name in the catalogue of engines; what has no recipe has no table."""
