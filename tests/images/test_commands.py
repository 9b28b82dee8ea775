"""What `voice images` prints: the list, and the commands that publish an image."""

import itertools
import json
import shlex

import pytest
from typer.testing import CliRunner, Result

from blueprint import catalog
from blueprint.contract.images import Image
from blueprint.images import specs
from ops.cli import app
from ops.images import commands
from ops.images.rehearsal import RehearsalError, install_tools

DIGEST = f"sha256:{'a' * 64}"
ECR = "123456789012.dkr.ecr.us-east-1.amazonaws.com/production"
ACR = "voice.azurecr.io"
VERSIONS = {name: engine.version for name, engine in catalog.engines().items()}


def voice(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["images", *arguments])


def build_args(name: str, registry: str, *more: str) -> list[list[str]]:
    result = voice("build-args", name, "--digest", DIGEST, "--registry", registry, "--revision", "r1", *more)
    assert result.exit_code == 0, result.output
    return [shlex.split(command) for command in result.stdout.replace("\\\n", " ").splitlines()]


def test_the_list_names_every_image() -> None:
    result = voice()
    assert result.exit_code == 0
    assert all(image in result.stdout for image in Image)
    assert f"vllm {VERSIONS['vllm']}, lmcache {VERSIONS['lmcache']}, nixl {VERSIONS['nixl']}" in result.stdout


def test_the_list_for_a_pipeline_is_json() -> None:
    listed = {record["image"]: record for record in json.loads(voice("--json").stdout)["images"]}
    assert listed.keys() == set(specs())
    assert listed["router"]["kind"] == "mirrored"
    assert listed["pd-router"]["ports"]["cluster_contract.PD_ROUTER_HTTP"] == 8003


def test_buildx_gets_every_argument_and_label() -> None:
    [command] = build_args("asr-vllm", ECR)
    assert command[:5] == ["docker", "buildx", "build", "--platform", "linux/amd64"]
    pairs = dict(itertools.pairwise(command))
    assert f"BASE_IMAGE=docker.io/vllm/vllm-openai@{DIGEST}" in command
    assert f"VLLM_VERSION={VERSIONS['vllm']}" in command
    assert f"org.opencontainers.image.base.digest={DIGEST}" in command
    assert pairs["--tag"] == f"{ECR}/asr-vllm:{VERSIONS['vllm']}-aaaaaaaaaaaa-r1"
    assert pairs["--file"] == "images/asr-vllm/Dockerfile"
    assert command[-2:] == ["--push", "."]


def test_buildah_builds_and_pushes_a_list_of_platforms() -> None:
    build, push = build_args("pd-router", ACR, "--tool", "buildah")
    target = f"{ACR}/pd-router:{VERSIONS['pd-router']}-aaaaaaaaaaaa-r1"
    assert build[:2] == ["buildah", "bud"]
    assert build[-5:] == ["--file", "images/pd-router/Dockerfile", "--manifest", target, "."]
    assert push == ["buildah", "manifest", "push", "--all", target, f"docker://{target}"]


@pytest.mark.parametrize("name", ["router", "lmcache", "device-plugin", "dcgm-exporter"])
def test_mirrored_images_keep_their_digest(name: str) -> None:
    tag = f"{name}:{VERSIONS[name]}-aaaaaaaaaaaa"
    [acr] = build_args(name, ACR)
    assert acr[:5] == ["az", "acr", "import", "--name", "voice"]
    assert acr[-2:] == ["--image", tag]
    [ecr] = build_args(name, ECR)
    assert ecr[:4] == ["skopeo", "copy", "--all", "--preserve-digests"]
    assert ecr[4].endswith(f"@{DIGEST}")
    assert ecr[5] == f"docker://{ECR}/{tag}"


def test_a_private_acr_imports_what_was_pushed_elsewhere() -> None:
    """A push needs the registry's network; an import is its control plane's work."""
    build, copy = build_args("pd-router", ACR, "--through", "ghcr.io/us")
    pushed = build[build.index("--tag") + 1 :]
    assert pushed[0].startswith("ghcr.io/us/pd-router:")
    assert ACR not in " ".join(build)
    assert copy == ["az", "acr", "import", "--name", "voice", "--source", pushed[0], "--image",
                    pushed[0].rpartition("/")[2]]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["asr-vllm", "--digest", DIGEST, "--through", "ghcr.io/us"], "is no ACR, and only ACR imports"),
        (["asr-vllm", "--digest", "latest"], "latest is no digest"),
        (["asr-vllm", "--digest", f"sha256:{'A' * 64}"], "is no digest"),
        (["asr-vllm", "--digest", f"OTHER={DIGEST}"], "asr-vllm has no base OTHER; it has BASE_IMAGE"),
        (["asr-vllm", "--digest", DIGEST, "--tool", "kaniko"], "kaniko is no tool"),
        (["router", "--digest", DIGEST, "--registry", f"{ACR}/production"], f"without a prefix; take --registry {ACR}"),
    ],
)
def test_wrong_answers_are_refused(arguments: list[str], message: str) -> None:
    result = voice("build-args", "--registry", ECR, *arguments)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")


def test_every_base_needs_its_digest() -> None:
    spec = specs()[Image.ASR_VLLM].model_copy(update={"bases": {"BUILD_IMAGE": "debian", "BASE_IMAGE": "vllm"}})
    with pytest.raises(commands.WrongDigestError, match="needs a digest for BASE_IMAGE"):
        commands.given_digests(spec, [DIGEST])
    both = commands.given_digests(spec, [f"BASE_IMAGE={DIGEST}", f"BUILD_IMAGE={DIGEST}"])
    assert list(both) == ["BUILD_IMAGE", "BASE_IMAGE"]


def test_a_registry_with_a_port_keeps_it() -> None:
    assert commands.by_digest("localhost:5000/a/b:v1", DIGEST) == f"localhost:5000/a/b@{DIGEST}"


@pytest.mark.parametrize("name", ["asr-vllm", "router"])
def test_what_needs_a_registry_is_not_rehearsed(name: str) -> None:
    result = voice("rehearse", name)
    assert result.exit_code == 2
    assert "cannot be built without its registry" in result.output


def test_missing_tools_are_named_to_who_cannot_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RehearsalError, match=r"apt-get install buildah mmdebstrap iproute2"):
        install_tools()


def test_a_rehearsal_that_fails_says_what_the_program_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    result = voice("rehearse")
    assert result.exit_code == 1
    assert "needs root" in result.output
