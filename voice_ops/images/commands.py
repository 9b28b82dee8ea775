"""Commands that publish an image to a registry. An image is built from our Dockerfile, or copied from its publisher."""

import os
import re
import shlex
from collections.abc import Mapping

from voice_blueprint import catalog
from voice_blueprint.contract.images import Image
from voice_blueprint.images import BUILD_CONTEXT, BuiltImage, ImageSpec, MirroredImage, find_upstream_reference
from voice_blueprint.shipped import IS_INSTALLED

Command = list[str]

_DIGEST_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")
BUILD_TOOLS = ("docker", "buildah")
_ACR_SUFFIX = ".azurecr.io"
UPSTREAM_DIGEST_KEY = "UPSTREAM"
"""Key for the digest of a mirrored image."""


class InvalidDigestError(ValueError):
    """A digest is invalid, or missing for a base."""


def pin_digest(reference: str, digest: str) -> str:
    """Return an image's reference with its digest in place of its tag."""
    repository, _, name = reference.rpartition("/")
    return f"{repository}/{name.partition(':')[0]}@{digest}"


def format_image_tag(spec: ImageSpec, digests: Mapping[str, str], revision: str) -> str:
    """Return the tag for a push.

    The tag consists of the engine's version, a short digest of each base, and the revision of the source. Tags in a
    registry are immutable, so the tag contains everything that can change. Deployments pull by digest.
    """
    names = [spec.upstream] if isinstance(spec, MirroredImage) else list(spec.versions.values())
    version = catalog.engines()[names[0]].version if names else "base"
    source = [revision] if isinstance(spec, BuiltImage) else []
    return "-".join([version, *(digest.removeprefix("sha256:")[:12] for digest in digests.values()), *source])


def list_base_references(spec: ImageSpec) -> dict[str, str]:
    """Return the tagged reference of each base of an image, by build argument."""
    if isinstance(spec, MirroredImage):
        return {UPSTREAM_DIGEST_KEY: find_upstream_reference(spec.upstream)}
    return {argument: find_upstream_reference(name) for argument, name in spec.bases.items()}


def format_digest_command(reference: str) -> str:
    """Return the command that prints the digest of a multi-platform image in its publisher's registry.

    ``Digest`` is that of the top-level manifest: https://github.com/containers/skopeo/blob/main/docs/skopeo-inspect.1.md
    """
    return f"skopeo inspect --no-tags --format '{{{{.Digest}}}}' docker://{reference}"


def format_publish_command(spec: ImageSpec, registry: str) -> str:
    """Return the shell command that builds or copies an image, and pushes, scans and signs it.

    Args:
        registry: Host and prefix of the repositories.
    """
    script = (
        ".ci/images" if IS_INSTALLED else shlex.quote(os.path.relpath(BUILD_CONTEXT / ".ci/images"))
    )  # `voice new` wrote it
    digests = [f'{name}="$({format_digest_command(base)})"' for name, base in list_base_references(spec).items()]
    return " \\\n  ".join([f"{script} {shlex.quote(registry)} {spec.name}", *digests])


def create_import_command(image: Image, digest: str, source: str, registry: str) -> Command:
    """Return the command that imports an image into an ACR, whose control plane reads the other registry.

    Args:
        source: Host and prefix of the source registry.
        registry: Host of the ACR.
    """
    return _create_copy_command(
        f"{source}/{image}@{digest}", f"{registry}/{image}:{digest.removeprefix('sha256:')[:12]}"
    )


def parse_digests(spec: ImageSpec, texts: list[str]) -> dict[str, str]:
    """Parse ``sha256:...`` or ``ARGUMENT=sha256:...`` for every base of an image.

    Raises:
        InvalidDigestError: A digest is missing or invalid, or does not belong to a base.
    """
    bases = list_base_references(spec)
    desired = list(bases)
    digests = {}
    for text in texts:
        argument, _, digest = text.rpartition("=")
        argument = argument or desired[0]
        if argument not in desired:
            raise InvalidDigestError(f"{spec.name} has no base {argument}; its bases are {', '.join(desired)}")
        if not _DIGEST_PATTERN.fullmatch(digest):
            raise InvalidDigestError(f"{digest} is not a digest, which is sha256: and 64 hexadecimal digits")
        digests[argument] = digest
    missing = [argument for argument in desired if argument not in digests]
    if missing:
        digest_commands = "; ".join(f"`{format_digest_command(bases[argument])}`" for argument in missing)
        raise InvalidDigestError(f"{spec.name} requires a digest for {', '.join(missing)}: {digest_commands}")
    return {argument: digests[argument] for argument in desired}


def collect_build_arguments(spec: BuiltImage, digests: Mapping[str, str]) -> dict[str, str]:
    return {
        argument: pin_digest(find_upstream_reference(name), digests[argument]) for argument, name in spec.bases.items()
    } | (spec.build_args)


def create_image_labels(spec: BuiltImage, digests: Mapping[str, str], revision: str) -> dict[str, str]:
    """Return the OCI annotations of an image as labels."""
    argument, base = next(iter(spec.bases.items()))
    prefix = "org.opencontainers.image"
    return {
        f"{prefix}.title": spec.name,
        f"{prefix}.description": spec.summary,
        f"{prefix}.version": format_image_tag(spec, digests, revision),
        f"{prefix}.revision": revision,
        f"{prefix}.base.name": find_upstream_reference(base),
        f"{prefix}.base.digest": digests[argument],
        **spec.labels,
    }


def _repeat_option(option: str, values: Mapping[str, str]) -> Command:
    return [word for key, value in values.items() for word in (option, f"{key}={value}")]


def create_push_commands(
    spec: ImageSpec, digests: Mapping[str, str], registry: str, revision: str, *, tool: str
) -> list[Command]:
    """Return the commands that publish an image to a registry, to be run in the current folder.

    Args:
        digests: Digests by build argument; for a mirrored image, the image's digest with any key.
        registry: Host of ACR, or host and repository prefix of ECR.
        revision: Commit of this repository with the Dockerfile.
        tool: ``docker`` (buildx) or ``buildah``; mirrored images need neither.
    """
    target = f"{registry}/{spec.name}:{format_image_tag(spec, digests, revision)}"
    if isinstance(spec, MirroredImage):
        return [
            _create_copy_command(
                pin_digest(find_upstream_reference(spec.upstream), next(iter(digests.values()))), target
            )
        ]
    options = ["--platform", ",".join(spec.platforms)]
    options += _repeat_option("--build-arg", collect_build_arguments(spec, digests)) + _repeat_option(
        "--label", create_image_labels(spec, digests, revision)
    )
    context = os.path.relpath(BUILD_CONTEXT)
    file_options = ["--file", os.path.normpath(f"{context}/images/{spec.name}/Dockerfile")]
    if tool == "docker":
        attest = ["--provenance=mode=max", "--sbom=true"]
        return [["docker", "buildx", "build", *options, *attest, *file_options, "--tag", target, "--push", context]]
    # A manifest list, so that one tag contains every platform.
    build = ["buildah", "bud", "--format", "docker", *options, *file_options, "--manifest", target, context]
    return [build, ["buildah", "manifest", "push", "--all", target, f"docker://{target}"]]


def is_acr(registry: str) -> bool:
    """Return True if a registry is an ACR, whose control plane copies images from other registries."""
    return registry.partition("/")[0].endswith(_ACR_SUFFIX)


def _create_copy_command(source: str, target: str) -> Command:
    host, _, repository = target.partition("/")
    if is_acr(target):
        name = host.removesuffix(_ACR_SUFFIX)
        return ["az", "acr", "import", "--name", name, "--source", source, "--image", repository]
    # The digest must not change, since the deployment file pins it. `docker pull && push` would change it.
    return ["skopeo", "copy", "--all", "--preserve-digests", f"docker://{source}", f"docker://{target}"]


def format_shell_command(command: Command) -> str:
    """Format a command for a shell, with one option per line."""
    lines: list[str] = []
    for word in command:
        quoted = shlex.quote(word)
        if word.startswith("--") or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n  ".join(lines)
