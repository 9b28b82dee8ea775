"""Router for a cell: vllm-router (Rust) for JSON, and a proxy for file uploads."""

from dataclasses import dataclass

from voice_blueprint.azure.rollout import ENGINE_STARTUP_TIMEOUT_S
from voice_blueprint.engines.launch.base import LOOPBACK, Launcher, build_http_url, format_flags

REQUEST_TIMEOUT_S = 1800
"""Maximum duration of an engine's response."""
HEALTH_CHECK_INTERVAL_S = 5
MAX_HEALTH_CHECK_FAILURES = 2
"""Number of failed checks after which the router removes an engine; one success restores it. With the defaults of 60 s,
three failures and two successes, a cell rejected callers for two minutes after a restarted engine was ready again
(measured, vllm-router 0.1.17)."""
METRICS_PORT = 29000
"""Default metrics port of the router on the loopback. The router's metrics repeat those of the engines."""


@dataclass(frozen=True)
class PdRouter(Launcher):
    """A router that sends a prompt to the prefill engine, and the address of the KV cache to the decode engine.

    The router parses every body as JSON, so multipart uploads and WebSockets bypass it. See ``CellProxy``.

    Attributes:
        port: Loopback port.
    """

    port: int
    prefill_port: int
    decode_port: int

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector.

        With one engine per role, retries have no other target, and a circuit breaker would reject all requests after
        one slow minute. Both are disabled.
        """
        return (
            "vllm-router",
            *format_flags(
                {
                    "--host": LOOPBACK,
                    "--port": self.port,
                    "--vllm-pd-disaggregation": True,
                    "--prefill": (build_http_url(self.prefill_port),),
                    "--decode": (build_http_url(self.decode_port),),
                    "--policy": "round_robin",
                    "--kv-connector": "nixl",
                    "--disable-retries": True,
                    "--disable-circuit-breaker": True,
                    "--request-timeout-secs": REQUEST_TIMEOUT_S,
                    # The router listens once both engines are ready. If they are not ready within this timeout
                    # (default: 600 s), the router exits.
                    "--worker-startup-timeout-secs": ENGINE_STARTUP_TIMEOUT_S,
                    "--worker-startup-check-interval": HEALTH_CHECK_INTERVAL_S,
                    "--health-check-interval-secs": HEALTH_CHECK_INTERVAL_S,
                    "--health-failure-threshold": MAX_HEALTH_CHECK_FAILURES,
                    "--health-success-threshold": 1,
                    "--prometheus-host": LOOPBACK,
                    "--prometheus-port": METRICS_PORT,
                    "--log-level": "info",
                }
            ),
        )


NGINX_CONFIG_FILE = "/etc/voice/nginx.conf"

DISAGGREGATED_PATHS = ("/v1/chat/completions", "/v1/completions")
"""Paths that are prefilled by one engine and decoded by the other, including audio prompts in JSON. All other paths go
to the decode engine."""

HEALTH_PATH = "/health"
"""Path of health checks. The P/D router responds with 503 while an engine is missing, so a cell that cannot serve chat
requests is unhealthy even if its decode engine is ready."""


@dataclass(frozen=True)
class CellProxy(Launcher):
    """nginx on the public port of the cell.

    It forwards JSON to the P/D router, and uploads and all other requests to the decode engine.

    Attributes:
        port: Port for the cluster.
        pd_router_port: Loopback port of the P/D router.
        decode_port: Loopback port of the decode engine.
        max_body_mib: Maximum request body, MiB; the same as the engines'.
    """

    port: int
    pd_router_port: int
    decode_port: int
    max_body_mib: int

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector."""
        return ("nginx", "-e", "stderr", "-c", NGINX_CONFIG_FILE)

    def render_files(self) -> dict[str, str]:
        """Return the configuration of nginx, which runs unprivileged and only writes under /tmp."""
        return {NGINX_CONFIG_FILE: "\n".join(self._render_config_lines()) + "\n"}

    def _render_config_lines(self) -> list[str]:
        temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        return [
            "daemon off;",
            "worker_processes auto;",
            "pid /tmp/nginx.pid;",
            "events { worker_connections 8192; }",
            "http {",
            *(f"  {name}_temp_path /tmp/{name};" for name in temporary),
            "  # Logs contain neither addresses of callers nor their requests.",
            "  access_log off;",
            f"  client_max_body_size {self.max_body_mib}m;",
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
            *(
                f"    location = {path} {{ proxy_pass http://pd_router; }}"
                for path in (*DISAGGREGATED_PATHS, HEALTH_PATH)
            ),
            "    location / { proxy_pass http://decode; }",
            "  }",
            "}",
        ]
