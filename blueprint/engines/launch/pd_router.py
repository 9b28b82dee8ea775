"""What leads a cell's callers to its two engines: vllm-router (Rust) for text, and a front that knows audio."""

from dataclasses import dataclass

from blueprint.engines.launch.base import LOOPBACK, Launcher, flags, http

REQUEST_TIMEOUT_S = 1800
"""Longest answer of an engine."""
METRICS_PORT = 29000
"""The router's own default, on the loopback: its figures are the engines' once more."""


@dataclass(frozen=True)
class PdRouter(Launcher):
    """Sends a prompt to prefill, then its KV cache's address to decode.

    It reads every body as JSON, so multipart uploads and WebSockets never get this far: see ``CellFront``.

    Attributes:
        port: Its own, on the loopback.
    """

    port: int
    prefill_port: int
    decode_port: int

    def command(self) -> tuple[str, ...]:
        """Return the full argument vector.

        With one engine on either side there is nobody to retry with, and an open circuit breaker would turn one slow
        minute into a refusal of everybody: both are off.
        """
        return (
            "vllm-router",
            *flags(
                {
                    "--host": LOOPBACK,
                    "--port": self.port,
                    "--vllm-pd-disaggregation": True,
                    "--prefill": (http(self.prefill_port),),
                    "--decode": (http(self.decode_port),),
                    "--policy": "round_robin",
                    "--kv-connector": "nixl",
                    "--disable-retries": True,
                    "--disable-circuit-breaker": True,
                    "--request-timeout-secs": REQUEST_TIMEOUT_S,
                    "--prometheus-host": LOOPBACK,
                    "--prometheus-port": METRICS_PORT,
                    "--log-level": "info",
                }
            ),
        )


FRONT_FILE = "/etc/voice/nginx.conf"

DISAGGREGATED_PATHS = ("/v1/chat/completions", "/v1/completions")
"""What is prefilled on one side and decoded on the other; everything else is the decode engine's."""


@dataclass(frozen=True)
class CellFront(Launcher):
    """nginx on the port that the cluster knows: text to the P/D router, audio and the rest to the decode engine.

    Attributes:
        port: Its own, for the cluster.
        pd_router_port: On the loopback.
        decode_port: On the loopback.
        body_mib: Largest request body, MiB; what the engines take.
    """

    port: int
    pd_router_port: int
    decode_port: int
    body_mib: int

    def command(self) -> tuple[str, ...]:
        """Return the full argument vector."""
        return ("nginx", "-e", "stderr", "-c", FRONT_FILE)

    def files(self) -> dict[str, str]:
        """Return nginx's configuration; it runs without privileges and writes under /tmp only."""
        return {FRONT_FILE: "\n".join(self._lines()) + "\n"}

    def _lines(self) -> list[str]:
        temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        return [
            "daemon off;",
            "worker_processes auto;",
            "pid /tmp/nginx.pid;",
            "events { worker_connections 8192; }",
            "http {",
            *(f"  {name}_temp_path /tmp/{name};" for name in temporary),
            "  # Addresses of callers and what they ask for are nobody's business here.",
            "  access_log off;",
            f"  client_max_body_size {self.body_mib}m;",
            "  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }",
            f"  upstream pd_router {{ server {LOOPBACK}:{self.pd_router_port}; keepalive 64; }}",
            f"  upstream decode {{ server {LOOPBACK}:{self.decode_port}; keepalive 64; }}",
            "  server {",
            f"    listen {self.port};",
            "    proxy_http_version 1.1;",
            "    proxy_set_header Host $host;",
            "    # Of WebSockets; empty otherwise, which keeps upstream connections open.",
            "    proxy_set_header Upgrade $http_upgrade;",
            "    proxy_set_header Connection $connection_upgrade;",
            "    # Tokens go out as they come; uploads go in as they come.",
            "    proxy_buffering off;",
            "    proxy_request_buffering off;",
            f"    proxy_read_timeout {REQUEST_TIMEOUT_S}s;",
            f"    proxy_send_timeout {REQUEST_TIMEOUT_S}s;",
            *(f"    location = {path} {{ proxy_pass http://pd_router; }}" for path in DISAGGREGATED_PATHS),
            "    location / { proxy_pass http://decode; }",
            "  }",
            "}",
        ]
