"""Fakes of the guide's programs that need an account, a container engine or the internet.

Each runs under the name of the program that it replaces. It records its call, checks what the real program would
refuse, and creates what the real program would. Signatures are real: ``cosign`` signs with an openssl key, and pushes
the format of cosign's specification, which ``voice images verify`` reads.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import yaml

from tests.registry import Registry, SigningKey

STATE = Path(os.environ.get("DAY_ONE_STATE", ""))
"""Folder with the shared state of the fakes."""
REGISTRY = Registry(os.environ.get("DAY_ONE_REGISTRY", ""), {}, STATE)
"""Local registry; its certificate and credentials are in the environment."""

MAX_ATTEMPTS = 5


def refuse(text: str) -> NoReturn:
    sys.exit(f"stand-in: {text}")


def option_value(option: str, arguments: list[str]) -> str:
    """Return the value of an option."""
    if option not in arguments:
        refuse(f"{option} is missing in {arguments}")
    return arguments[arguments.index(option) + 1]


def push(target: str, content: str) -> None:
    """Push an image to the test registry, with its name and tag unchanged."""
    repository, _, tag = target.rpartition(":")
    host, _, prefix = repository.rpartition("/")
    if host != f"{REGISTRY.host}/voice":
        refuse(f"{target} is not in the registry that this machine reaches")
    REGISTRY.push(prefix, content, tag=tag)


def az(arguments: list[str]) -> None:
    match arguments[:2]:
        case ["account", "show"]:
            print("11111111-2222-3333-4444-555555555555")
        case ["vm", "show"]:
            print("/subscriptions/x/resourceGroups/mine/providers/Microsoft.Compute/virtualMachines/mine-jump")
        case ["acr", "import"]:
            source, image = option_value("--source", arguments), option_value("--image", arguments)
            if not re.fullmatch(r"[^@]+@sha256:[0-9a-f]{64}", source):
                refuse(f"{source} does not pin a digest")
            real_skopeo(["inspect", "--no-tags", "--format", "{{.Name}}", f"docker://{source}"])
            (STATE / "imported").mkdir(exist_ok=True)
            imported = {"registry": option_value("--name", arguments), "digest": source.partition("@")[2]}
            (STATE / "imported" / image.partition(":")[0]).write_text(json.dumps(imported))
        case ["keyvault", "secret"]:
            file = Path(option_value("--file", arguments))
            if not file.exists():
                refuse(f"{file} does not exist")


def docker(arguments: list[str]) -> None:
    if arguments[:2] != ["buildx", "build"]:
        return
    dockerfile, context = Path(option_value("--file", arguments)), Path(arguments[-1])
    if not (dockerfile.exists() and (context / "pyproject.toml").exists()):
        refuse(f"{dockerfile} and {context} do not exist as seen from {Path.cwd()}")
    if not re.search(r"BASE_IMAGE=\S+@sha256:[0-9a-f]{64}\b", " ".join(arguments)):
        refuse(f"no base by digest in {arguments}")
    push(option_value("--tag", arguments), dockerfile.parent.name)


def real_skopeo(arguments: list[str]) -> None:
    """Run the real program, with more attempts on a busy machine where the handshake exceeds skopeo's ten seconds."""
    for _ in range(MAX_ATTEMPTS):
        done = subprocess.run([os.environ["DAY_ONE_SKOPEO"], *arguments], capture_output=True, text=True, check=False)  # noqa: S603
        if "handshake timeout" not in done.stderr:
            break
    print(done.stdout, end="")
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode:
        sys.exit(done.returncode)


def skopeo(arguments: list[str]) -> None:
    """Return fake responses for upstream registries, which need the internet; run the real program otherwise."""
    images = [word.removeprefix("docker://") for word in arguments if word.startswith("docker://")]
    if not images or images[0].startswith(f"{REGISTRY.host}/"):
        real_skopeo(arguments)
    elif arguments[0] == "inspect":
        print(f"sha256:{hashlib.sha256(images[0].encode()).hexdigest()}")
    else:
        push(images[1], images[0].partition("@")[0].rpartition("/")[2])


def syft(arguments: list[str]) -> None:
    Path(option_value("--output", arguments).partition("=")[2]).write_text("{}")


def cosign(arguments: list[str]) -> None:
    key = SigningKey(STATE, quote(option_value("--kms" if "--kms" in arguments else "--key", arguments), safe=""))
    match arguments[0]:
        case "generate-key-pair":
            Path("cosign.pub").write_text(key.public)
        case "public-key":
            print(key.public, end="")
        case "sign-blob":
            print(key.sign(Path(arguments[-1]).read_bytes()))
        case "sign":
            repository, _, digest = arguments[-1].partition("@")
            REGISTRY.sign(repository.rpartition("/")[2], digest, key)


def pulumi(arguments: list[str]) -> None:
    """Store stacks like the CLI: configuration in the project folder, state in a shared backend."""
    if arguments[0] == "login":
        return
    folder = Path(option_value("-C", arguments))
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text())["name"]
    state, selected = STATE / "stacks" / project, folder / ".selected"
    match arguments[2:]:
        case ["stack", "init", name]:
            state.mkdir(parents=True, exist_ok=True)
            (state / name).write_text("new")
            selected.write_text(name)
        case ["stack", "select", name]:
            if not (state / name).exists():
                refuse(f"{project} has no stack {name}")
            selected.write_text(name)
        case rest:
            if not selected.exists():
                refuse(f"no stack of {project} is selected in {folder}")
            _run_pulumi(project, folder, state / selected.read_text(), rest)


def _run_pulumi(project: str, folder: Path, stack: Path, arguments: list[str]) -> None:
    configuration = folder / f"Pulumi.{stack.name}.yaml"
    match arguments:
        case ["config", "set", key, value]:
            configuration.write_text(yaml.safe_dump({"config": {f"{project}:{key}": value}}))
        case ["up", *_]:
            file = yaml.safe_load(configuration.read_text())["config"][f"{project}:deployment"]
            for path in (file, option_value("--policy-pack", arguments)):
                if not (folder / path).exists():
                    refuse(f"{path} does not exist as seen from {folder}")
            stack.write_text("up")
        case ["stack", "output", name]:
            if stack.read_text() != "up":
                refuse(f"{project} has no outputs before `pulumi up`")
            print(json.loads((STATE / "outputs.json").read_text())[name])
        case _:
            refuse(f"pulumi {arguments} is not known here")


def make(arguments: list[str]) -> None:
    """Simulate the set-up target: programs are installed where the real target installs them."""
    if arguments != ["setup"]:
        refuse(f"make {arguments} is not known here")
    for folder, names in ((".venv/bin", ("voice", "python")), ("node_modules/.bin", ("pulumi",))):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (Path(folder) / name).symlink_to(STATE / "installed" / name)


def voice(arguments: list[str]) -> None:
    """Run the command of the folder that it is installed in, except where it needs an account."""
    if arguments[0] in {"preflight", "status", "rollout", "teardown"}:
        return
    root = Path.cwd()
    parts = [root, *(root / name for name in ("constructs", "stacks", "userdata")), *root.glob("images/*/src")]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, parts))
    os.execv(sys.executable, [sys.executable, "-c", "from voice_ops.main import main; main()", *arguments])  # noqa: S606


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "az": az, "cosign": cosign, "docker": docker, "make": make, "pulumi": pulumi, "skopeo": skopeo, "syft": syft,
    "voice": voice,
}  # fmt: skip
RECORDED_PROGRAMS = ("curl", "grype", "kubectl", "kubelogin")
"""Programs whose output no later command reads."""


def main() -> None:
    name, words = sys.argv[1], sys.argv[2:]
    with (STATE / "calls").open("a") as calls:
        calls.write(" ".join([name, *words]) + "\n")
    if name in PROGRAMS:
        PROGRAMS[name](words)


if __name__ == "__main__":
    main()
