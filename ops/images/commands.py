"""The exact commands that put an image into a registry: built from our Dockerfile, or copied from its publisher."""

import re
import shlex
from collections.abc import Mapping

from blueprint import catalog
from blueprint.images import BuiltImage, ImageSpec, MirroredImage, upstream

Command = list[str]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TOOLS = ("docker", "buildah")
_AZURE = ".azurecr.io"


class WrongDigestError(ValueError):
    """What was given is no digest, or not one for every base."""


def by_digest(reference: str, digest: str) -> str:
    """Return an image's reference with its digest in place of its tag."""
    repository, _, name = reference.rpartition("/")
    return f"{repository}/{name.partition(':')[0]}@{digest}"


def tag(spec: ImageSpec, digests: Mapping[str, str], revision: str) -> str:
    """Return the tag that a push needs: the engine's version, each base's digest in short, and what it was built from.

    Registries refuse to overwrite a tag, so it names all that can change; deployments pull by digest.
    """
    names = [spec.upstream] if isinstance(spec, MirroredImage) else list(spec.versions.values())
    version = catalog.engines()[names[0]].version if names else "base"
    source = [revision] if isinstance(spec, BuiltImage) else []
    return "-".join([version, *(digest.removeprefix("sha256:")[:12] for digest in digests.values()), *source])


def given_digests(spec: ImageSpec, given: list[str]) -> dict[str, str]:
    """Read ``sha256:...`` or ``ARGUMENT=sha256:...`` for every base of an image.

    Raises:
        WrongDigestError: One is missing, has the wrong form, or is for no base.
    """
    wanted = list(spec.bases) if isinstance(spec, BuiltImage) else ["UPSTREAM"]
    digests = {}
    for text in given:
        argument, _, digest = text.rpartition("=")
        argument = argument or wanted[0]
        if argument not in wanted:
            raise WrongDigestError(f"{spec.name} has no base {argument}; it has {', '.join(wanted)}")
        if not _DIGEST.fullmatch(digest):
            raise WrongDigestError(f"{digest} is no digest: sha256: and 64 hexadecimal digits")
        digests[argument] = digest
    missing = [argument for argument in wanted if argument not in digests]
    if missing:
        raise WrongDigestError(f"{spec.name} needs a digest for {', '.join(missing)}")
    return {argument: digests[argument] for argument in wanted}


def build_arguments(spec: BuiltImage, digests: Mapping[str, str]) -> dict[str, str]:
    return {argument: by_digest(upstream(name), digests[argument]) for argument, name in spec.bases.items()} | (
        spec.build_args
    )


def labels(spec: BuiltImage, digests: Mapping[str, str], revision: str) -> dict[str, str]:
    """Return the image's OCI annotations."""
    argument, base = next(iter(spec.bases.items()))
    prefix = "org.opencontainers.image"
    return {
        f"{prefix}.title": spec.name,
        f"{prefix}.description": spec.summary,
        f"{prefix}.version": tag(spec, digests, revision),
        f"{prefix}.revision": revision,
        f"{prefix}.base.name": upstream(base),
        f"{prefix}.base.digest": digests[argument],
        **spec.labels,
    }


def _options(option: str, values: Mapping[str, str]) -> Command:
    return [word for key, value in values.items() for word in (option, f"{key}={value}")]


def push_commands(
    spec: ImageSpec, digests: Mapping[str, str], registry: str, revision: str, *, tool: str, through: str | None = None
) -> list[Command]:
    """Return the commands that put one image into a registry, to be run in the repository's root.

    Args:
        digests: By build argument; of a mirrored image, its own under any key.
        registry: Host of ACR, or of ECR with the repositories' prefix.
        revision: Commit of this repository that a Dockerfile is taken from.
        tool: ``docker`` (buildx) or ``buildah``; mirrored images need neither.
        through: Another registry's host and prefix, where a build cannot be pushed to a private ACR from here: ACR
            imports it from there, which its control plane does.
    """
    name = f"{spec.name}:{tag(spec, digests, revision)}"
    target = f"{registry}/{name}"
    if isinstance(spec, MirroredImage):
        return [_copy(by_digest(upstream(spec.upstream), next(iter(digests.values()))), target)]
    if through:
        return [*push_commands(spec, digests, through, revision, tool=tool), _copy(f"{through}/{name}", target)]
    options = ["--platform", ",".join(spec.platforms)]
    options += _options("--build-arg", build_arguments(spec, digests)) + _options(
        "--label", labels(spec, digests, revision)
    )
    what = ["--file", f"images/{spec.name}/Dockerfile"]
    if tool == "docker":
        attest = ["--provenance=mode=max", "--sbom=true"]
        return [["docker", "buildx", "build", *options, *attest, *what, "--tag", target, "--push", "."]]
    # A manifest list, so that one tag holds every platform.
    build = ["buildah", "bud", "--format", "docker", *options, *what, "--manifest", target, "."]
    return [build, ["buildah", "manifest", "push", "--all", target, f"docker://{target}"]]


def is_azure(registry: str) -> bool:
    """Whether a registry is an ACR, whose control plane copies images from other registries."""
    return registry.partition("/")[0].endswith(_AZURE)


def _copy(source: str, target: str) -> Command:
    host, _, repository = target.partition("/")
    if is_azure(target):
        return ["az", "acr", "import", "--name", host.removesuffix(_AZURE), "--source", source, "--image", repository]
    # The digest must survive: it is what the deployment file pins. `docker pull && push` would change it.
    return ["skopeo", "copy", "--all", "--preserve-digests", f"docker://{source}", f"docker://{target}"]


def shell(command: Command) -> str:
    """Return a command as a person would paste it: an option a line."""
    lines: list[str] = []
    for word in command:
        quoted = shlex.quote(word)
        if word.startswith("--") or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n  ".join(lines)
