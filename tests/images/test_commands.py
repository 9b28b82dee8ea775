"""Output of `voice images`: the list, and the commands that publish an image."""

import itertools
import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import voice_blueprint
from voice_blueprint import catalog
from voice_blueprint.contract.images import Image
from voice_blueprint.hosts import list_required_images
from voice_blueprint.images import BUILD_CONTEXT, load_image_specs
from voice_ops.cli import app
from voice_ops.images import commands
from voice_ops.images.rehearsal import RehearsalError, install_tools

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


def test_the_list_contains_every_image() -> None:
    result = voice()
    assert result.exit_code == 0
    assert all(image in result.stdout for image in Image)
    assert f"vllm {VERSIONS['vllm']}, lmcache {VERSIONS['lmcache']}, nixl {VERSIONS['nixl']}" in result.stdout


def test_the_list_for_a_pipeline_is_json() -> None:
    listed = {record["image"]: record for record in json.loads(voice("--json").stdout)["images"]}
    assert listed.keys() == set(load_image_specs())
    assert listed["lmcache"]["kind"] == "mirrored"
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


@pytest.mark.parametrize("name", ["lmcache", "device-plugin", "dcgm-exporter"])
def test_mirrored_images_keep_their_digest(name: str) -> None:
    tag = f"{name}:{VERSIONS[name]}-aaaaaaaaaaaa"
    [acr] = build_args(name, ACR)
    assert acr[:5] == ["az", "acr", "import", "--name", "voice"]
    assert acr[-2:] == ["--image", tag]
    [ecr] = build_args(name, ECR)
    assert ecr[:4] == ["skopeo", "copy", "--all", "--preserve-digests"]
    assert ecr[4].endswith(f"@{DIGEST}")
    assert ecr[5] == f"docker://{ECR}/{tag}"


def test_build_commands_name_the_repository_from_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users may paste the commands in the folder of a Pulumi project."""
    monkeypatch.chdir(BUILD_CONTEXT / "stacks/voice_stacks/azure/cluster")
    [docker] = build_args("pd-router", ECR)
    assert dict(itertools.pairwise(docker))["--file"] == "../../../../images/pd-router/Dockerfile"
    assert docker[-1] == "../../../.."
    buildah, _ = build_args("pd-router", ECR, "--tool", "buildah")
    assert buildah[-1] == "../../../.."


def test_images_without_a_digest_are_published() -> None:
    file = BUILD_CONTEXT / "deployments/production-azure.yaml"
    printed = voice("publish", str(file), "--registry", "ghcr.io/you")
    assert printed.exit_code == 0, printed.output
    published = [shlex.split(command) for command in printed.stdout.replace("\\\n", " ").splitlines()]
    wanted = list_required_images(voice_blueprint.load(file))
    assert [command[:3] for command in published] == [[".ci/images", "ghcr.io/you", image] for image in wanted]
    for image, (*_, base) in zip(wanted, published, strict=True):
        name, _, command = base.partition("=")
        assert name == next(iter(commands.list_base_references(load_image_specs()[image])))
        assert command.startswith("$(skopeo inspect --no-tags --format '{{.Digest}}' docker://")
        assert command.removesuffix(")").endswith(commands.list_base_references(load_image_specs()[image])[name])


def test_images_with_a_digest_are_imported_not_published(tmp_path: Path) -> None:
    """A push to a private ACR needs its network; an import runs in its control plane."""
    text = (BUILD_CONTEXT / "deployments/production-azure.yaml").read_text(encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(text.replace("images: {}", f"images: {{router: {DIGEST}}}"), encoding="utf-8")
    printed = voice("import", str(file), "--from", "ghcr.io/you", "--registry", ACR)
    assert printed.exit_code == 0, printed.output
    assert shlex.split(printed.stdout.replace("\\\n", " ")) == [
        "az", "acr", "import", "--name", "voice",
        "--source", f"ghcr.io/you/router@{DIGEST}", "--image", "router:aaaaaaaaaaaa",
    ]  # fmt: skip
    assert " router" not in voice("publish", str(file), "--registry", "ghcr.io/you").stdout


@pytest.mark.parametrize("registry", [ECR, "voice.azurecr.io/production", "ghcr.io"])
def test_only_acr_imports(registry: str) -> None:
    file = str(BUILD_CONTEXT / "deployments/production-azure.yaml")
    result = voice("import", file, "--from", "ghcr.io/you", "--registry", registry)
    assert result.exit_code == 2
    assert "is not the host of an ACR" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["asr-vllm", "--digest", "latest"], "latest is not a digest"),
        (["asr-vllm", "--digest", f"sha256:{'A' * 64}"], "is not a digest"),
        (["asr-vllm", "--digest", f"OTHER={DIGEST}"], "asr-vllm has no base OTHER; its bases are BASE_IMAGE"),
        (["asr-vllm", "--digest", DIGEST, "--tool", "kaniko"], "kaniko is not a build tool"),
        (["lmcache", "--digest", DIGEST, "--registry", f"{ACR}/mine"], f"without a prefix; use --registry {ACR}"),
    ],
)
def test_invalid_responses_are_refused(arguments: list[str], message: str) -> None:
    result = voice("build-args", "--registry", ECR, *arguments)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")


def test_every_base_requires_its_digest() -> None:
    spec = load_image_specs()[Image.ASR_VLLM].model_copy(
        update={"bases": {"BUILD_IMAGE": "debian", "BASE_IMAGE": "vllm"}}
    )
    with pytest.raises(
        commands.InvalidDigestError, match=r"requires a digest for BASE_IMAGE: `skopeo inspect .*vllm-openai"
    ):
        commands.parse_digests(spec, [DIGEST])
    both = commands.parse_digests(spec, [f"BASE_IMAGE={DIGEST}", f"BUILD_IMAGE={DIGEST}"])
    assert list(both) == ["BUILD_IMAGE", "BASE_IMAGE"]


def test_a_registry_with_a_port_keeps_it() -> None:
    assert commands.pin_digest("localhost:5000/a/b:v1", DIGEST) == f"localhost:5000/a/b@{DIGEST}"


@pytest.mark.parametrize("name", ["asr-vllm", "lmcache"])
def test_images_from_a_registry_are_not_rehearsed(name: str) -> None:
    result = voice("rehearse", name)
    assert result.exit_code == 2
    assert "cannot be built without its registry" in result.output


def test_missing_tools_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RehearsalError, match=r"apt-get install buildah mmdebstrap iproute2"):
        install_tools()


def test_a_failed_rehearsal_prints_the_output_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    result = voice("rehearse")
    assert result.exit_code == 1
    assert "root permissions" in result.output
