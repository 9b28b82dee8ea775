"""``--kv-transfer-config``: who keeps KV cache, and who hands it to whom."""

from dataclasses import dataclass
from enum import StrEnum

Config = dict[str, object]


class Role(StrEnum):
    """An engine's part in its cell."""

    PREFILL = "prefill"
    DECODE = "decode"
    AGGREGATED = "aggregated"
    """Both; nothing is handed over."""


_NIXL_ROLES = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}
"""``kv_both`` is deprecated for NIXL: each side says what it is."""


@dataclass(frozen=True)
class KvTransfer:
    """The KV connectors of one engine.

    Attributes:
        lmcache_port: Port of the engine's own LMCache server on its loopback; ``None`` is no LMCache. Prefill and
            decode must not share a server.
    """

    role: Role
    lmcache_port: int | None = None

    def __post_init__(self) -> None:
        if self.role is Role.AGGREGATED and self.lmcache_port is None:
            raise ValueError("an aggregated engine without LMCache has no KV connector: give it no KvTransfer")

    def config(self) -> Config:
        """Return the JSON value of the flag.

        Under ``MultiConnector`` NIXL stands first: the first connector that has the tokens loads them. A failed NIXL
        transfer fails the request, for recomputing a prompt on the decode engine would stall everyone else's tokens.
        """
        if self.role is Role.AGGREGATED:
            return self._lmcache()
        nixl: Config = {
            "kv_connector": "NixlConnector",
            "kv_role": _NIXL_ROLES[self.role],
            "kv_load_failure_policy": "fail",
        }
        if self.lmcache_port is None:
            return nixl
        return {
            "kv_connector": "MultiConnector",
            "kv_role": _NIXL_ROLES[self.role],
            "kv_connector_extra_config": {"connectors": [nixl, self._lmcache()]},
        }

    def _lmcache(self) -> Config:
        return {
            "kv_connector": "LMCacheMPConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "lmcache.mp.host": "tcp://localhost",
                "lmcache.mp.port": self.lmcache_port,
            },
        }
