"""``--kv-transfer-config``: storage and transfer of KV cache."""

from dataclasses import dataclass
from enum import StrEnum

ConnectorConfig = dict[str, object]

LMCACHE_HEARTBEAT_INTERVAL_S = 2.0
"""Interval of an engine's pings to its LMCache server. After a server has terminated, requests wait for its cache until
a ping fails, and are then computed without the cache. With LMCache's default of 10 s, they waited up to 20 s (measured,
0.5.6)."""

LMCACHE_TIMEOUT_S = 30.0
"""Timeout of an engine's requests to its LMCache server. A worker may wait for the responses between two batches; vLLM
allows 300 s per batch (``VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS``), which is also LMCache's default. With that default,
after their server was killed, engines hung for 300 s and then terminated (measured, 0.5.6). The server is ready before
its engine starts."""


class EngineRole(StrEnum):
    """Role of an engine in its cell."""

    PREFILL = "prefill"
    DECODE = "decode"
    AGGREGATED = "aggregated"
    """Prefill and decode in one engine, without a transfer."""


NIXL_ROLE_BY_ENGINE_ROLE = {EngineRole.PREFILL: "kv_producer", EngineRole.DECODE: "kv_consumer"}
"""Roles in NIXL's configuration. ``kv_both`` is deprecated, so each side specifies its role."""


_FAILURE_POLICY_CONFIG: ConnectorConfig = {"kv_load_failure_policy": "recompute"}
"""Policy for failed loads, which the scheduler only reads from the outermost configuration (vllm 0.32.0:
``v1/core/sched/scheduler.py``)."""


@dataclass(frozen=True)
class KvTransfer:
    """KV connectors of one engine.

    Attributes:
        lmcache_port: Loopback port of the engine's own LMCache server; ``None`` without LMCache. Prefill and decode
            must not share a server.
    """

    role: EngineRole
    lmcache_port: int | None = None

    def __post_init__(self) -> None:
        if self.role is EngineRole.AGGREGATED and self.lmcache_port is None:
            raise ValueError("an aggregated engine without LMCache has no KV connector: omit KvTransfer")

    def build_config(self) -> ConnectorConfig:
        """Return the JSON value of the flag.

        Under ``MultiConnector``, NIXL is first, since the first connector that has the tokens loads them. Tokens that
        cannot be loaded are recomputed. With ``fail``, vLLM's default, a single unreadable chunk made its request fail
        and terminated the engine (measured, vllm 0.32.0: ``assert req_id in self.requests`` in
        ``v1/core/sched/scheduler.py``).
        """
        if self.role is EngineRole.AGGREGATED:
            return self._build_lmcache_config() | _FAILURE_POLICY_CONFIG
        nixl: ConnectorConfig = {"kv_connector": "NixlConnector", "kv_role": NIXL_ROLE_BY_ENGINE_ROLE[self.role]}
        if self.lmcache_port is None:
            return nixl | _FAILURE_POLICY_CONFIG
        return {
            "kv_connector": "MultiConnector",
            "kv_role": NIXL_ROLE_BY_ENGINE_ROLE[self.role],
            **_FAILURE_POLICY_CONFIG,
            "kv_connector_extra_config": {"connectors": [nixl, self._build_lmcache_config()]},
        }

    def _build_lmcache_config(self) -> ConnectorConfig:
        return {
            "kv_connector": "LMCacheMPConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "lmcache.mp.host": "tcp://localhost",
                "lmcache.mp.port": self.lmcache_port,
                "lmcache.mp.heartbeat_interval": LMCACHE_HEARTBEAT_INTERVAL_S,
                "lmcache.mp.mq_timeout": LMCACHE_TIMEOUT_S,
            },
        }
