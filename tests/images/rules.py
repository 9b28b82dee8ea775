"""Rules for every Dockerfile and image.yaml of this project, as functions that yield violations."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import PurePosixPath

from tests.images.dockerfile import Dockerfile, Instruction
from voice_blueprint import catalog
from voice_blueprint.images import BUILD_CONTEXT, BuiltImage, HttpHealthCheck, ImageSpec

_SECRET = re.compile(r"(?i)(password|passwd|secret|token|api_?key|credential|private_?key)")
_DOWNLOAD = re.compile(r"\b(curl|wget)\b(?!=)")
_CHECKSUM = re.compile(r"sha256sum\s+(-c|--check)")
_IGNORED_FAILURE = re.compile(r"\|\|\s*(true|:|exit 0)(\s|;|$)")
_SHARED_SOURCES = ("voice_blueprint/contract", "images/runtime/", "images/whisper-engine/src", "images/debian.sh")
_MOUNT = re.compile(r"--mount=type=bind,(?:\S*,)?source=([^,\s]+)")
_VARIABLE = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)\}?")


def bases_are_arguments(docker: Dockerfile, spec: BuiltImage) -> Iterator[str]:
    """Every stage starts from an earlier stage or from a base pinned by digest."""
    stages: set[str] = set()
    for instruction in docker.all("FROM"):
        reference, *alias = instruction.words
        found = _VARIABLE.fullmatch(reference)
        if reference not in stages and (not found or found[1] not in spec.bases):
            yield f"line {instruction.line}: FROM {reference} is no base of image.yaml, taken by digest"
        stages.update(alias[1:])
    for name in spec.bases:
        if docker.arguments.get(name, "") is not None:
            yield f"build argument {name} is missing or has a default: which base it is belongs to the build"


def arguments_agree(docker: Dockerfile, spec: BuiltImage) -> Iterator[str]:
    """Dockerfile and image.yaml have the same build arguments, which are used and have no defaults."""
    declared, given = docker.arguments, {*spec.bases, *spec.build_args}
    yield from (f"build argument {name} is not in image.yaml" for name in sorted(declared.keys() - given))
    yield from (f"image.yaml gives {name}, the Dockerfile does not take it" for name in sorted(given - declared.keys()))
    yield from (f"build argument {name} has the default {value}" for name, value in declared.items() if value)
    used = {name for item in docker.instructions if item.keyword != "ARG" for name in _VARIABLE.findall(item.text)}
    yield from (f"build argument {name} is used nowhere" for name in sorted(declared.keys() - used))


def nothing_floats(docker: Dockerfile) -> Iterator[str]:
    """All references are immutable."""
    for item in docker.instructions:
        if re.search(r":latest\b|@latest\b", item.text):
            yield f"line {item.line}: `latest` is not a version"
        if item.keyword == "RUN" and _installs_loosely(item):
            yield f"line {item.line}: installs Python packages without --require-hashes"
        if item.keyword == "COPY" and any(re.match(r"--from=\S*[./:]", flag) for flag in item.flags):
            yield f"line {item.line}: copies from an image that is no argument"


def _installs_loosely(item: Instruction) -> bool:
    commands = re.split(r"&&|;", item.text)
    return any(re.search(r"pip3? install", command) and "--require-hashes" not in command for command in commands)


def releases_can_be_built_again(docker: Dockerfile, spec: BuiltImage) -> Iterator[str]:
    """On Debian, packages are installed by ``debian.sh``: the archive removes a version once it has a newer one."""
    for item in docker.all("RUN") if spec.is_buildable_offline else ():
        if re.search(r"(?<![\w/])apt(-get)? ", item.text):
            yield f"line {item.line}: installs by apt; take images/debian.sh, which falls back to Debian's snapshot"


def failures_fail(docker: Dockerfile) -> Iterator[str]:
    """Failures of commands are not ignored, and downloads have a checksum."""
    for item in docker.all("RUN"):
        if _IGNORED_FAILURE.search(item.text):
            yield f"line {item.line}: forgives a failure"
        if _DOWNLOAD.search(item.text) and not _CHECKSUM.search(item.text):
            yield f"line {item.line}: downloads without `sha256sum --check`"
    for item in docker.all("ADD"):
        yield f"line {item.line}: ADD fetches and unpacks; COPY says what it does"


def runs_unprivileged(docker: Dockerfile, spec: BuiltImage) -> Iterator[str]:
    """The last stage runs as image.yaml's user, by number, so that Kubernetes can verify that it is not root."""
    users = [item for item in docker.stages[-1] if item.keyword == "USER"] if docker.stages else []
    last = users[-1].words[0] if users else "nobody that it names"
    if last not in {str(spec.user_id), f"{spec.user_id}:{spec.user_id}"}:
        yield f"runs as {last}, not as {spec.user_id}"


def sources_are_its_own(docker: Dockerfile, spec: BuiltImage) -> Iterator[str]:
    """All files copied from the repository exist, belong to the image or are shared, and pass .dockerignore."""
    for item in docker.all("COPY", "RUN"):
        if any(flag.startswith("--from") for flag in item.flags):
            continue
        for source in item.words[:-1] if item.keyword == "COPY" else _MOUNT.findall(item.text):
            if not list(BUILD_CONTEXT.glob(source.rstrip("/"))):
                yield f"line {item.line}: {source} is not in the repository"
            elif not source.startswith((f"images/{spec.name}/", *_SHARED_SOURCES)):
                yield f"line {item.line}: {source} is neither {spec.name}'s nor shared"
            elif not _is_in_build_context(PurePosixPath(source)):
                yield f"line {item.line}: {source} is kept out by .dockerignore"


def _is_in_build_context(source: PurePosixPath) -> bool:
    """Return True if .dockerignore includes a path, its parent, or a file in it."""
    lines = (BUILD_CONTEXT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = [PurePosixPath(line[1:]).parts for line in lines if line.startswith("!")]
    return any(all(map(fnmatch, source.parts, parts)) for parts in allowed)


def is_healthy(docker: Dockerfile, spec: ImageSpec) -> Iterator[str]:
    """An HTTP or TCP probe uses a port that the image listens on; a separate HEALTHCHECK would duplicate it."""
    if isinstance(spec.health, HttpHealthCheck) and spec.health.port not in spec.ports:
        yield f"health is asked on {spec.health.port}, which is none of its ports"
    yield from (f"line {item.line}: HEALTHCHECK; image.yaml says how to ask" for item in docker.all("HEALTHCHECK"))


def caches_survive(docker: Dockerfile, spec: BuiltImage) -> Iterator[str]:
    """Every home, cache or root folder of an environment variable is on the persistent volume."""
    for item in docker.all("ENV"):
        for name, equals, value in (word.partition("=") for word in item.words):
            is_cache = name == "HOME" or re.search(r"CACHE|HF_HOME|WORKSPACE_BASE", name)
            if equals and is_cache and not f"{value}/".startswith(f"{spec.cache_dir}/"):
                yield f"line {item.line}: {name} is {value}, not below {spec.cache_dir}"


def no_secrets(docker: Dockerfile) -> Iterator[str]:
    """Neither arguments nor environment contain a secret: both are in the image's history."""
    for item in docker.all("ARG", "ENV"):
        names = [word.partition("=")[0] for word in item.words]
        for name in filter(_SECRET.search, names):
            yield f"line {item.line}: {name} would be in the image's history"


def no_second_version(text: str) -> Iterator[str]:
    """No text that takes a catalogue version as an argument repeats it."""
    for engine in catalog.engines().values():
        if re.search(rf"(?<![\w.])v?{re.escape(engine.version.lstrip('v'))}(?![\w.]*\d)", text):
            yield f"{engine.version} of {engine.name} stands in voice_blueprint/catalog/engines.yaml"


def check(docker: Dockerfile, spec: BuiltImage) -> list[str]:
    """Apply every rule for Dockerfiles."""
    results: Iterable[Iterator[str]] = (
        bases_are_arguments(docker, spec),
        arguments_agree(docker, spec),
        nothing_floats(docker),
        releases_can_be_built_again(docker, spec),
        failures_fail(docker),
        runs_unprivileged(docker, spec),
        sources_are_its_own(docker, spec),
        is_healthy(docker, spec),
        caches_survive(docker, spec),
        no_secrets(docker),
    )
    return [problem for result in results for problem in result]
