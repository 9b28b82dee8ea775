"""The router in front of all engines: HAProxy with one path per model.

The router discovers the pods of a model's services through the cluster's DNS, and runs its own health checks.
Conversations are sticky: the conversation's id is hashed over the pods' addresses. Every replica of the router
therefore selects the same pod, and the loss of a pod only moves its own conversations
(docs/decisions/19-haproxy-routes.md lists the alternatives).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from voice_blueprint.contract.session_api import ROUTING_HEADER
from voice_blueprint.engines.launch.base import Launcher

CONFIG_FILE = "/etc/voice/haproxy.cfg"
HEALTH_PATH = "/health"
METRICS_PATH = "/metrics"

RESPONSE_TIMEOUT_S = 1800
"""Read timeout for an engine: a response that is not streamed arrives only once it is complete."""
CONNECT_TIMEOUT_S = 2
"""Timeout for a connection to a pod in the cluster, after which the next attempt starts."""
CLIENT_TIMEOUT_S = 60
"""Timeout for a client that sends a request or reads a response."""
REQUEST_TIMEOUT_S = 30
"""Timeout for a request's head and for the part of its body that fits ``BUFFER_SIZE_MIB``."""
BUFFER_SIZE_MIB = 1
"""Size of a connection's buffer. A request that fits the buffer is kept until its response begins, and is sent to
another pod if its pod fails. This size covers 30 s of speech as WAV, and conversations as JSON. A larger body is
streamed; if its pod fails, the response is 502. With HAProxy's default of 16 KiB and without waiting for bodies, most
requests to a killed engine failed with 502 (tests/router/test_lost_requests.py). Each connection occupies a buffer
while its request waits for the response."""
MAX_ATTEMPTS = 3
"""Maximum number of connection attempts for a request; each retry uses another pod."""
HEALTH_CHECK_INTERVAL_S = 2
HEALTH_CHECK_TIMEOUT_S = 5
"""Timeout for engines' ``/health``. A busy engine responds late, since its event loop tokenizes and decodes audio."""
UNHEALTHY_CHECK_THRESHOLD = 2
DNS_LOOKUP_INTERVAL_S = 1
DNS_CACHE_TTL_S = 30
"""TTL of AKS's CoreDNS cache, which cannot be configured (https://github.com/Azure/AKS/issues/3661 quotes it: `ttl 30`,
`cache 30`)."""
REMOVAL_DELAY_S = DNS_CACHE_TTL_S + 3 * DNS_LOOKUP_INTERVAL_S
"""Maximum time from when a pod is deleted or is no longer ready until the router sends the pod its last new request.
The time consists of the DNS cache, the lookup interval, a repeated lookup, and `hold obsolete`."""
DNS_HOLD_S = 3600
"""Time for which the addresses of pods are kept while DNS is unavailable."""
PEER_PROBE_INTERVAL_S = 5
"""Interval of the probes that detect a lost peer. After four intervals, the peer's requests are closed."""
MAX_LOAD_PERCENT = 300
"""Maximum load of a pod, in percent of the mean load. Further requests go to the next pod on the ring, which does not
have their KV cache. A few requests are never evenly distributed: at 150, three of four concurrent conversations changed
pods; at 200, two of eight; at 300, none of sixteen."""
RING_WEIGHT = 16
"""Weight of each pod. HAProxy puts 16 points on the ring per unit of weight. With more points, the pods' shares are
more even: they differ by about a quarter with 16 points, and by 6 % with 256 (the inverse of the square root of their
number)."""
MAX_CONNECTIONS = 8192
"""Maximum number of connections. Each requires two file descriptors; HAProxy does not start if the limit on open files
is lower."""


@dataclass(frozen=True)
class BackendService:
    """The engines of one service.

    Attributes:
        host: DNS name in the cluster with the address of each ready pod.
        port: HTTP port of every pod.
        max_pods: Maximum number of pods, including those of a rollout.
    """

    service: str
    host: str
    port: int
    max_pods: int


@dataclass(frozen=True)
class Backend:
    """Endpoints of a model, from one or more services.

    Attributes:
        model: Served name of the model, and first part of the path.
    """

    model: str
    services: Sequence[BackendService]

    @property
    def path_prefix(self) -> str:
        """Path prefix of the model's endpoints."""
        return f"/{self.model}"


@dataclass(frozen=True)
class Router(Launcher):
    """A replica of the router.

    Attributes:
        port: Port for requests, health and metrics.
        backends: The models.
        drain_s: Time for requests to finish after SIGUSR1.
        thread_count: Number of the container's CPUs.
        nameservers: Addresses with ports; if empty, those of ``/etc/resolv.conf``.
    """

    port: int
    backends: Sequence[Backend]
    drain_s: int
    thread_count: int
    nameservers: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.backends:
            raise ValueError("a router requires at least one service: add one to azure.services")
        for pods in (pods for backend in self.backends for pods in backend.services):
            if pods.max_pods < 1:
                raise ValueError(f"the router has no room for a pod of {pods.service}: its slots are {pods.max_pods}")

    def build_command(self) -> tuple[str, ...]:
        """Return the full argument vector.

        The process stays in the foreground; after SIGUSR1 it exits when its requests have finished.
        """
        return ("haproxy", "-db", "-f", CONFIG_FILE)

    def render_files(self) -> dict[str, str]:
        """Return HAProxy's configuration."""
        return {CONFIG_FILE: "\n".join(self._render_config_lines()) + "\n"}

    def _render_config_lines(self) -> Iterator[str]:
        yield "global"
        yield f"  maxconn {MAX_CONNECTIONS}"
        yield f"  nbthread {self.thread_count}"
        yield f"  tune.bufsize {BUFFER_SIZE_MIB << 20}"
        yield f"  hard-stop-after {self.drain_s}s"
        yield "  # Pods that come and go are logged, requests are not: they are what callers said."
        yield "  log stdout format raw local0 notice"
        yield from self._render_defaults_lines()
        yield "resolvers cluster"
        if self.nameservers:
            yield from (f"  nameserver dns{number} {each}" for number, each in enumerate(self.nameservers))
        else:
            yield "  parse-resolv-conf"
        yield "  # A headless service with many pods answers with more than 512 bytes."
        yield "  accepted_payload_size 8192"
        yield f"  timeout resolve {DNS_LOOKUP_INTERVAL_S}s"
        yield f"  timeout retry {DNS_LOOKUP_INTERVAL_S}s"
        yield from (f"  hold {state} {DNS_HOLD_S}s" for state in ("timeout", "refused", "other"))
        yield from (f"  hold {state} {DNS_LOOKUP_INTERVAL_S}s" for state in ("valid", "nx", "obsolete"))
        yield from self._render_frontend_lines()
        for backend in self.backends:
            yield from _render_backend_lines(backend)

    @staticmethod
    def _render_defaults_lines() -> Iterator[str]:
        yield "defaults"
        yield "  mode http"
        yield "  log global"
        yield f"  timeout connect {CONNECT_TIMEOUT_S}s"
        yield f"  timeout http-request {REQUEST_TIMEOUT_S}s"
        yield f"  timeout client {CLIENT_TIMEOUT_S}s"
        yield f"  timeout server {RESPONSE_TIMEOUT_S}s"
        yield f"  timeout tunnel {RESPONSE_TIMEOUT_S}s"
        yield f"  timeout queue {CONNECT_TIMEOUT_S}s"
        yield f"  retries {MAX_ATTEMPTS}"
        yield "  # A request whose answer has not begun is sent again. Nothing that an engine does outlasts its answer."
        yield "  option redispatch 1"
        yield "  retry-on conn-failure empty-response"
        yield "  # Only a request that has come whole can be sent again."
        yield "  option http-buffer-request"
        yield "  # A caller that hangs up, as at an interruption, leaves its engine no work."
        yield "  option abortonclose"
        yield "  # A node that is lost sends no more packets: its connections end by the kernel's keep-alive."
        yield "  option srvtcpka"
        yield f"  srvtcpka-idle {PEER_PROBE_INTERVAL_S}s"
        yield f"  srvtcpka-intvl {PEER_PROBE_INTERVAL_S}s"
        yield "  srvtcpka-cnt 3"
        no_engine = '{"error":{"message":"no engine of this model is ready; try again","type":"service_unavailable"}}'
        yield f"  http-error status 503 content-type application/json string '{no_engine}' hdr Retry-After 5"

    def _render_frontend_lines(self) -> Iterator[str]:
        paths = ", ".join(f"{backend.path_prefix}/v1" for backend in self.backends)
        unknown = f'{{"error":{{"message":"no such path; the models are at {paths}","type":"not_found"}}}}'
        yield "frontend models"
        yield f"  bind :{self.port}"
        yield f"  monitor-uri {HEALTH_PATH}"
        yield f"  http-request use-service prometheus-exporter if {{ path {METRICS_PATH} }}"
        answer = f"status 404 content-type application/json string '{unknown}'"
        yield f"  http-request return {answer} unless {self._format_known_models_condition()}"
        for backend in self.backends:
            yield f"  use_backend {backend.model} if {{ path_beg {backend.path_prefix}/ }}"

    def _format_known_models_condition(self) -> str:
        return "{ path_beg " + " ".join(f"{backend.path_prefix}/" for backend in self.backends) + " }"


def _render_backend_lines(backend: Backend) -> Iterator[str]:
    yield f"backend {backend.model}"
    yield f"  http-request replace-path {backend.path_prefix}(/.*) \\1"
    yield f"  balance hdr({ROUTING_HEADER})"
    yield "  hash-type consistent"
    yield f"  hash-balance-factor {MAX_LOAD_PERCENT}"
    yield "  option httpchk GET /health"
    yield f"  timeout check {HEALTH_CHECK_TIMEOUT_S}s"
    check = f"check inter {HEALTH_CHECK_INTERVAL_S}s fall {UNHEALTHY_CHECK_THRESHOLD} rise 1"
    yield f"  default-server {check} weight {RING_WEIGHT} hash-key addr-port"
    for pods in backend.services:
        server_range = f"1-{pods.max_pods} {pods.host}:{pods.port}"
        yield f"  server-template pod-{pods.service}- {server_range} resolvers cluster init-addr none"
