"""Gated models: the token is passed from the vault to the program that downloads the model, which is run here."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.azure.manifests import Pod, manifests, pods, production, workloads
from tests.stacks.azure.recorded import cluster
from voice_blueprint.azure.contract import WEIGHTS_DIR
from voice_blueprint.azure.names import ClusterOutput
from voice_constructs.azure.kubernetes.model_fetch import HUB_CREDENTIALS_DIR
from voice_sandbox.azure.graph import Graph
from voice_sandbox.azure.values import reveal_secrets

TOKEN = "hf_of_this_test"
GATED = production({"azure.hub_token_secret": "hub-token"})
COMMIT = "a" * 40
WEIGHTS = b"weights"
FILES = ("model.safetensors", "consolidated.safetensors")  # both weight formats, as in Voxtral's repository


@pytest.fixture(scope="module")
def graph() -> Graph:
    return workloads(GATED)


def jobs(graph: Graph) -> list[Pod]:
    return [each for each in pods(graph) if each.name.startswith("fetch-")]


def test_the_driver_reads_the_secret_as_the_permitted_identity(graph: Graph) -> None:
    (made,) = manifests(graph, "SecretProviderClass")
    outputs = cluster(GATED).outputs
    parameters = made["spec"]["parameters"]
    assert parameters["clientID"] == reveal_secrets(outputs[ClusterOutput.MODEL_FETCH_CLIENT_ID])
    assert parameters["keyvaultName"] == reveal_secrets(outputs[ClusterOutput.VAULT_NAME])
    assert parameters["tenantID"] == reveal_secrets(outputs[ClusterOutput.TENANT_ID])
    assert "objectName: hub-token\n" in parameters["objects"]


def test_every_job_has_the_token_as_a_file_and_no_engine_has_it(graph: Graph) -> None:
    assert jobs(graph)
    for each in pods(graph):
        classes = [
            volume["csi"]["volumeAttributes"]["secretProviderClass"]
            for volume in each.spec["volumes"]
            if "csi" in volume
        ]
        assert classes == (["hub-secrets"] if each in jobs(graph) else [])
    for job in jobs(graph):
        (container,) = job.main
        assert {"name": "HF_TOKEN_PATH", "value": f"{HUB_CREDENTIALS_DIR}/hub-token"} in container["env"]
        (volume,) = (volume["name"] for volume in job.spec["volumes"] if "csi" in volume)
        assert {"name": volume, "mountPath": HUB_CREDENTIALS_DIR, "readOnly": True} in container["volumeMounts"]
        assert job.spec["serviceAccountName"] == "model-fetch"  # which the identity trusts


def test_without_a_secret_no_workload_mounts_one() -> None:
    graph = workloads(production())
    assert not manifests(graph, "SecretProviderClass")
    assert not any("csi" in volume for each in pods(graph) for volume in each.spec["volumes"])


class Hub(ThreadingHTTPServer):
    """Fake hub with gated repositories."""


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted."})
        elif "/resolve/" in self.path:
            self._send(200, WEIGHTS, {"ETag": '"one"', "X-Repo-Commit": COMMIT})
        else:
            found: dict[str, Any] = {
                "id": "any/model",
                "sha": COMMIT,
                "siblings": [{"rfilename": name} for name in FILES],
            }
            tree = [{"type": "file", "path": name, "size": len(WEIGHTS), "oid": "one"} for name in FILES]
            self._send(200, json.dumps(tree if "/tree/" in self.path else found).encode(), {})

    do_HEAD = do_GET  # noqa: N815  a name that http.server asks for

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = Hub(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("with_token", [True, False])
def test_the_deployed_program_downloads_a_gated_model(graph: Graph, hub: str, tmp_path: Path, with_token: bool) -> None:
    """Runs the command of the job in its environment, with local folders as volumes."""
    (container,) = jobs(graph)[0].main
    secrets, weights = tmp_path / "hub", tmp_path / "weights"
    secrets.mkdir()
    if with_token:
        (secrets / "hub-token").write_text(TOKEN, encoding="utf-8")
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    for name, value in environment.items():
        environment[name] = value.replace(HUB_CREDENTIALS_DIR, str(secrets)).replace(WEIGHTS_DIR, str(weights))
    environment |= {"HF_ENDPOINT": hub, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.defpath}"}
    done = subprocess.run(  # noqa: S603  the command of the manifest
        container["command"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    found = {path.name: path.read_bytes() for path in weights.rglob("*.safetensors")}
    one_format = {"consolidated.safetensors": WEIGHTS}
    assert (done.returncode == 0, found) == (with_token, one_format if with_token else {}), done.stderr
