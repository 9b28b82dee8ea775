"""A cluster that runs a file: a local Azure Resource Manager and API server for the real clients.

No cluster was available, so nothing is recorded. The cluster runs the programs' output with the changes that the two
services make: defaults are added, quantities are in canonical form, empty values are omitted, and values that Azure
chooses differ from the local engine's. Objects are validated against Kubernetes' own schema.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import yaml
from azure.core.credentials import AccessToken

from tests.ops.preflight.azure_stub import SIGNING_KEY, Operator, Subscription
from tests.stacks.azure.manifests import Manifest, quantity
from tests.stacks.azure.recorded import inputs
from voice_blueprint.azure.names import API_SERVER_APP_ID
from voice_ops.azure.workloads import DefinedWorkloads
from voice_sandbox.azure.graph import Graph
from voice_sandbox.hosts.certificates import CertificateAuthority

MIB = 2**20


class SignedIn(Operator):
    """An operator whose tokens contain their audience, like those of Microsoft Entra."""

    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        token = super().get_token(*scopes, **options)
        claims = jwt.decode(token.token, options={"verify_signature": False}) | {"aud": scopes[0]}
        return token._replace(token=jwt.encode(claims, SIGNING_KEY))


@dataclass
class LiveCluster(Subscription):
    """Responses of both APIs; tests change them before they send requests.

    Attributes:
        cluster: Properties of the managed cluster; absent before the first deploy.
        pools: Properties of its agent pools, by name.
        deployments: Deployments of the namespaces, by namespace and name.
        pods: Pods of the namespaces.
        denied: Whether the API server denies the operator access.
        kubeconfig: The credentials that Azure returns.
    """

    cluster: dict[str, Any] | None = None
    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    deployments: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    pods: list[Manifest] = field(default_factory=list)
    denied: bool = False
    kubeconfig: str = ""

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "/managedClusters/" not in path:
            return super().answer(method, path, body)
        found = self.cluster
        if path.endswith("/listClusterUserCredential"):
            config = base64.b64encode(self.kubeconfig.encode()).decode()
            return 200, {"kubeconfigs": [{"name": "clusterUser", "value": config}]}
        if "/agentPools/" in path:
            found = self.pools.get(path.rpartition("/")[2]) if self.cluster else None
        if found is None:
            return 404, {"error": {"code": "ResourceNotFound", "message": "The Resource was not found."}}
        return 200, {"id": path, "name": path.rpartition("/")[2], "properties": found}

    def objects(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the response of the API server."""
        found = re.fullmatch(r"/(?:api/v1|apis/apps/v1)/namespaces/([^/]+)/(pods|deployments)", path)
        assert found, path
        if self.denied:
            user = 'User "operator@example.com" cannot list resource'
            return 403, {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": user}
        namespace, kind = found.groups()
        items = self.pods if kind == "pods" else list(self.deployments.values())
        own = [each for each in items if each["metadata"]["namespace"] == namespace]
        # Objects in a list have no kind.
        bare = [{key: value for key, value in each.items() if key not in {"kind", "apiVersion"}} for each in own]
        return 200, {"kind": "List", "metadata": {}, "items": bare}


def running(graph: Graph, wanted: DefinedWorkloads) -> LiveCluster:
    """Return the cluster after both projects of a file were deployed, with every pod ready."""
    (managed,) = graph.find_resources_of_type("containerservice:ManagedCluster")
    state = {"provisioningState": "Succeeded", "powerState": {"code": "Running"}}
    profile = inputs(managed)
    cluster = profile | state | {"currentKubernetesVersion": f"{profile['kubernetesVersion']}.4"}
    pools = {each["name"]: each | state for each in profile["agentPoolProfiles"]}
    for pool in graph.find_resources_of_type("containerservice:AgentPool"):
        own = inputs(pool)
        pools[own["agentPoolName"]] = own | state | {"count": own["minCount"]}
    objects = {key: as_deployed(each, wanted.placeholders) for key, each in wanted.deployments.items()}
    return LiveCluster(cluster=cluster, pools=pools, deployments=objects)


def as_deployed(manifest: Manifest, chosen: frozenset[str]) -> Manifest:
    """Return a Deployment in the API server's form once all of its pods are ready."""
    live: Manifest = _as_stored(copy.deepcopy(manifest), chosen)
    replicas = live["spec"].setdefault("replicas", 1)
    live["metadata"] |= {"generation": 3, "uid": "b1f7", "resourceVersion": "812"}
    live["spec"] |= {"progressDeadlineSeconds": 600, "revisionHistoryLimit": 10}
    live["spec"]["template"]["spec"] |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    for container in live["spec"]["template"]["spec"]["containers"]:
        container |= {"imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log"}
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    live["status"] = {"observedGeneration": 3} | {key: count for key, count in counts.items() if count}
    return live


def _as_stored(value: Any, chosen: frozenset[str], key: str = "") -> Any:  # noqa: ANN401  parts of a manifest
    if isinstance(value, dict):
        quantities = key in {"requests", "limits"}
        stored = {
            name: canonical(below) if quantities or name == "sizeLimit" else _as_stored(below, chosen, name)
            for name, below in value.items()
        }
        return {name: below for name, below in stored.items() if below not in ("", [], None)}
    if isinstance(value, list):
        return [_as_stored(each, chosen, key) for each in value]
    if isinstance(value, str):
        for made_up in chosen:
            value = value.replace(made_up, f"azure{len(made_up)}")
    return value


def canonical(text: str) -> str:
    """Return a quantity in the API server's form: without fractions, with the largest suffix that fits.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity
    """
    amount = quantity(text)
    if text.endswith("i"):
        for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
            if amount % (2 ** (10 * power)) == 0:
                return f"{amount / 2 ** (10 * power):f}{suffix}"
    whole = amount == amount.to_integral_value()
    return f"{amount:f}" if whole else f"{(amount * 1000).quantize(Decimal(1)):f}m"


def pod_for(deployment: Manifest, **status: object) -> Manifest:
    """Return a pod of a Deployment."""
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    metadata = {"name": f"{deployment['metadata']['name']}-7c9d", "labels": labels,
                "namespace": deployment["metadata"]["namespace"]}  # fmt: skip
    return {"kind": "Pod", "metadata": metadata, "status": status}


@contextmanager
def api_server(cluster: LiveCluster, folder: Path) -> Iterator[None]:
    """Serve the objects over TLS to clients with a token for AKS.

    The kubeconfig contains the server and its certificate authority.
    """
    authority = CertificateAuthority(folder / "authority")
    certificate, key = authority.issue("localhost", folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            audience = jwt.decode(token, options={"verify_signature": False}).get("aud")
            if audience == f"{API_SERVER_APP_ID}/.default":
                status, answer = cluster.objects(self.path)
            else:
                status, answer = 401, {"kind": "Status", "code": 401, "message": "Unauthorized"}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    data = base64.b64encode(authority.file.read_bytes()).decode()
    place = {"server": f"https://localhost:{server.server_port}", "certificate-authority-data": data}
    cluster.kubeconfig = yaml.safe_dump({"clusters": [{"name": "mine", "cluster": place}]})
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
