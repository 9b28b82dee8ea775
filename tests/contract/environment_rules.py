"""Every variable that an image reads is set by all of its launchers."""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.contract.templates import Templates, resources_by_type, text
from voice_blueprint.contract.environment import Variable
from voice_blueprint.contract.images import Image
from voice_blueprint.engines.published.release import load_published_table

PREFIX = "VOICE_"

ENGINE_TABLES: dict[Image, str | None] = {Image.ASR_VLLM: "vllm", Image.ASR_NEURON: None, Image.WHISPER_ENGINE: None}
"""Images with third-party engines or libraries, and the table of the variables that the engine reads, if any."""

LIBRARY_VARIABLES = {
    "HOME": "POSIX",
    "XDG_CACHE_HOME": "XDG Base Directory Specification",
    "DO_NOT_TRACK": "vLLM, Hugging Face",
    "HF_HOME": "huggingface_hub",
    "HF_HUB_OFFLINE": "huggingface_hub",
    "TORCHINDUCTOR_CACHE_DIR": "PyTorch",
    "TRITON_CACHE_DIR": "Triton",
    "CUDA_CACHE_PATH": "CUDA",
    "FLASHINFER_WORKSPACE_BASE": "FlashInfer",
    "NEURON_RT_VISIBLE_CORES": "Neuron runtime",
    "NEURON_COMPILE_CACHE_URL": "NeuronX persistent cache",
}
"""Variables of libraries in those images, with their owners."""


@dataclass(frozen=True)
class Launch:
    """A container and the environment that its launcher sets.

    Attributes:
        own: Variables of this container with their values; values known only to the host are empty.
        shared: Variables of every container on the host.
    """

    where: str
    image: str
    own: Mapping[str, str]
    shared: Mapping[str, str] = field(default_factory=dict)


def launches(templates: Templates) -> Iterator[Launch]:
    """Yield every container of every launch template and serving task definition; a fleet's job has a name."""
    for template in resources_by_type(templates, "EC2::LaunchTemplate"):
        if "LaunchTemplateName" in template.properties:
            continue
        yield from _host_launches(str(template), text(template.properties["LaunchTemplateData"]["UserData"]))
    for task in resources_by_type(templates, "ECS::TaskDefinition"):
        for container in task.properties["ContainerDefinitions"]:
            given = {entry["Name"]: text(entry["Value"]) for entry in container.get("Environment", [])}
            secrets = {entry["Name"]: text(entry["ValueFrom"]) for entry in container.get("Secrets", [])}
            yield Launch(str(task), container["Name"], given | secrets)


def violations(templates: Templates, environment: Mapping[Image, Collection[Variable]]) -> list[str]:
    """Return variables that a launcher does not set or no program reads, and images missing from the contract."""
    return [problem for launch in launches(templates) for problem in check(launch, environment)]


def check(launch: Launch, environment: Mapping[Image, Collection[Variable]]) -> Iterator[str]:
    """Yield the problems of one container's variables."""
    where = f"{launch.where}, container {launch.image}"
    if launch.image not in {image.value for image in environment}:
        yield f"{where}: the contract knows no such image"
        return
    read = {variable.name for variable in environment[Image(launch.image)]}
    for name in sorted(read - launch.own.keys() - launch.shared.keys()):
        yield f"{where}: {name} is read and not set"
    for name in sorted(launch.own.keys() - read - _engine_variables(Image(launch.image), launch.own)):
        yield f"{where}: {name} is set and not read"
    anywhere = {variable.name for variables in environment.values() for variable in variables}
    for name in sorted(launch.shared.keys() - anywhere):
        yield f"{where}: {name} is set and read by no image"


def _engine_variables(image: Image, names: Iterable[str]) -> set[str]:
    """Return the ``names`` that the image's engine, or one of its libraries, reads."""
    if image not in ENGINE_TABLES:
        return set()
    table = ENGINE_TABLES[image]
    known = LIBRARY_VARIABLES.keys() | (load_published_table(table).environment if table else set())
    return {name for name in names if name in known}


def _host_launches(where: str, script: str) -> Iterator[Launch]:
    tables = dict(_tables(script))
    on_the_host = re.search(r"^environment_of\(\) \{\n(.*?)^\}", script, re.DOTALL | re.MULTILINE)
    shared = dict.fromkeys(re.findall(rf"{PREFIX}\w+(?==)", on_the_host[1] if on_the_host else ""), "")
    common = re.search(r"^COMMON=('.*?')$", script, re.DOTALL | re.MULTILINE)
    shared |= _pairs(shlex.split(common[1])[0].splitlines() if common else [])
    for name, uri in tables["IMAGE"].items():
        # The repository is a reference to a resource, so only the digest is literal.
        assert "@sha256:" in uri
        yield Launch(where, name, _pairs(tables.get("ENVIRONMENT", {}).get(name, "").splitlines()), shared)


def _tables(script: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each associative array of the line ``declare -A IMAGE=([a]='...' [b]='...') ENVIRONMENT=(...)``."""
    declared = re.search(r"^declare -A (.*?\))$(?=\n\w+=)", script, re.DOTALL | re.MULTILINE)
    assert declared, "user data declares no containers"
    for name, body in re.findall(r"(\w+)=\(((?:\[[^\]]+\]=(?:'[^']*'|\S+?)\s?)*)\)", declared[1]):
        entries = re.findall(r"\[([^\]]+)\]=('[^']*'|\S+)", body)
        yield name, {key: shlex.split(value)[0] for key, value in entries}


def _pairs(assignments: Iterable[str]) -> dict[str, str]:
    split = (assignment.partition("=") for assignment in assignments)
    return {name: value for name, _, value in split}
