"""`voice images`: container images, commands to publish them, local builds, and machine images."""

import subprocess
from importlib.metadata import version
from typing import Annotated

import typer
from rich.text import Text

from voice_blueprint import catalog, signing
from voice_blueprint.contract.images import Image
from voice_blueprint.hosts import list_required_images
from voice_blueprint.images import (
    IMAGES_FOLDER,
    BuiltImage,
    ImageSpec,
    MirroredImage,
    find_upstream_reference,
    load_image_specs,
)
from voice_blueprint.shipped import IS_INSTALLED
from voice_ops.exits import EXIT_CODES_HELP, FAILED, INVALID_INPUT
from voice_ops.findings import load_deployment
from voice_ops.images import commands, signatures
from voice_ops.images.rehearsal import ImageResult, RehearsalError, open_rehearsal, rehearse_image
from voice_ops.options import DeploymentFileArgument, JsonOption
from voice_ops.output import create_exit, create_table, err, format_markup, out, print_json

app = typer.Typer(
    help="List, build, publish and verify container images, and propose machine images.",
    epilog=EXIT_CODES_HELP,
    add_completion=False,
)

RegistryOption = Annotated[str, typer.Option(help="Registry host. For ECR, include the repository prefix.")]
ImageNameArgument = Annotated[Image, typer.Argument(metavar="NAME", help="Name of the image, such as asr-vllm.")]


@app.callback(invoke_without_command=True, epilog=EXIT_CODES_HELP)
def list_images(context: typer.Context, as_json: JsonOption = False) -> None:
    """List all images with kind, base, versions, platforms, size budget and users.

    Example: voice images --json
    """
    if context.invoked_subcommand:
        return
    if as_json:
        print_json({"images": [_serialize_image(spec) for spec in load_image_specs().values()]})
        return
    for image in Image:
        spec = load_image_specs().get(image)
        out.print(_describe_image(spec) if spec else format_markup("[bold]{}[/]  not built yet", image), soft_wrap=True)


@app.command("build-args", epilog=EXIT_CODES_HELP)
def build_args(
    name: ImageNameArgument,
    registry: RegistryOption,
    digest: Annotated[
        list[str],
        typer.Option(help="Digest of the base or upstream image, sha256:...; with several bases, ARGUMENT=sha256:..."),
    ],
    revision: Annotated[str, typer.Option(help="Commit of this repository to build.")] = "HEAD",
    tool: Annotated[str, typer.Option(help="Build tool: docker (buildx) or buildah.")] = "docker",
) -> None:
    """Print the commands that build or copy an image into a registry.

    Example: voice images build-args router --digest sha256:... --registry voice.azurecr.io
    """
    spec = load_image_specs().get(name)
    if spec is None:
        raise create_exit(f"{name} has no image.yaml yet", INVALID_INPUT)
    if tool not in commands.BUILD_TOOLS:
        raise create_exit(f"{tool} is not a build tool; use {' or '.join(commands.BUILD_TOOLS)}", INVALID_INPUT)
    try:
        digests = commands.parse_digests(spec, digest)
    except commands.InvalidDigestError as error:
        raise create_exit(str(error), INVALID_INPUT) from None
    host, _, prefix = registry.partition("/")
    if prefix and commands.is_acr(registry):
        raise create_exit(
            f"{registry}: pods pull images from an ACR without a prefix; use --registry {host}", INVALID_INPUT
        )
    for command in commands.create_push_commands(spec, digests, registry, _resolve_revision(revision), tool=tool):
        typer.echo(commands.format_shell_command(command))


@app.command("publish", epilog=EXIT_CODES_HELP)
def publish(file: DeploymentFileArgument, registry: RegistryOption) -> None:
    """Print the commands that build, push, scan and sign the images that have no digest in the file.

    The commands read base image digests from the publishers' registries, require SIGNING_KEY in the environment, and
    end by printing the line for `images`. Prints nothing if every image has a digest.

    Example: voice images publish deployments/mine.yaml --registry ghcr.io/you
    """
    deployment = load_deployment(file)
    for image in list_required_images(deployment):
        if image not in deployment.images:
            typer.echo(commands.format_publish_command(load_image_specs()[image], registry))


@app.command("import", epilog=EXIT_CODES_HELP)
def import_images(
    file: DeploymentFileArgument,
    source: Annotated[str, typer.Option("--from", help="Source registry, with the prefix of its repositories.")],
    registry: Annotated[str, typer.Option(help="Host of the ACR that the cluster pulls from.")],
) -> None:
    """Print the commands that import a file's images into a private ACR from another registry.

    ACR's control plane does the import, so it works without access to the private network. If the source registry
    requires authentication, add `--username` and `--password` to each command.

    Example: voice images import deployments/mine.yaml --from ghcr.io/you --registry voice.azurecr.io
    """
    if not commands.is_acr(registry) or "/" in registry:
        raise create_exit(
            f"{registry} is not the host of an ACR, such as voice.azurecr.io; only an ACR can import images",
            INVALID_INPUT,
        )
    deployment = load_deployment(file)
    for image in list_required_images(deployment):
        if digest := deployment.images.get(image):
            typer.echo(commands.format_shell_command(commands.create_import_command(image, digest, source, registry)))


@app.command("rehearse", epilog=EXIT_CODES_HELP)
def rehearse_images(
    name: Annotated[
        list[Image] | None,
        typer.Argument(
            metavar="[NAME]...", help="Images to build. By default, all images based directly on a Linux distribution."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build and run images on this machine. Requires root and access to Debian's archive.

    Example: voice images rehearse pd-router
    """
    desired = [spec for image, spec in load_image_specs().items() if not name or image in name]
    buildable = [spec for spec in desired if isinstance(spec, BuiltImage) and spec.is_buildable_offline]
    if name and len(buildable) < len(set(name)):
        raise create_exit(
            "an image that is mirrored or based on another publisher's image cannot be built without its registry",
            INVALID_INPUT,
        )
    try:
        with open_rehearsal(lambda text: err.print(text, soft_wrap=True)) as stage:
            results = [rehearse_image(spec, stage) for spec in buildable]
    except RehearsalError as error:
        raise create_exit(str(error), FAILED) from None
    if as_json:
        print_json({"images": [vars(result) for result in results]})
        return
    for result in results:
        out.print(_format_result(result), soft_wrap=True)


@app.command("ami", epilog=EXIT_CODES_HELP)
def propose_machine_images(file: DeploymentFileArgument, as_json: JsonOption = False) -> None:
    """Propose the latest machine image for each fleet: from its Image Builder pipeline, or from AWS.

    Read-only. Exits with 1 if there is no image for a fleet.

    Example: voice images ami deployments/production-us-east-1.yaml
    """
    # Imported here, since the other commands of this group need no cloud.
    from voice_ops.aws.account import Account, create_deployment_session  # noqa: PLC0415
    from voice_ops.aws.refusals import AWS_ERRORS, report_aws_error  # noqa: PLC0415
    from voice_ops.images.ami import propose_images  # noqa: PLC0415

    deployment = load_deployment(file)
    if deployment.aws_section is None:
        raise create_exit(f"{file} has no section `aws`, and therefore no machine images", INVALID_INPUT)
    try:
        matches = list(propose_images(Account(deployment, {}, create_deployment_session(deployment))))
    except AWS_ERRORS as error:
        raise report_aws_error(error) from None
    if as_json:
        print_json({"fleets": matches}, deployment.name)
    else:
        table = create_table("machine_image of each fleet", ["fleet", "in the file", "proposed"], [], "which is")
        for each in matches:
            row = (
                each.in_file or "newest of AWS",
                each.proposed or "none",
                f"{each.made}, {each.since}".strip(", "),
            )
            table.add_row(each.fleet, *row)
        out.print(table)
    if not all(each.proposed for each in matches):
        raise typer.Exit(FAILED)


@app.command("manifest", epilog=EXIT_CODES_HELP)
def print_manifest(file: DeploymentFileArgument) -> None:
    """Print the text to sign with the key of `image_signing`: the file's digests as one line of JSON.

    Example: voice images manifest FILE | cosign sign-blob --key awskms:///alias/images -
    """
    typer.echo(signing.format_digest_manifest(load_deployment(file).images), nl=False)


@app.command("verify", epilog=EXIT_CODES_HELP)
def verify_images(file: DeploymentFileArgument, registry: RegistryOption, as_json: JsonOption = False) -> None:
    """Verify the signatures of a file's images in a registry, as hosts do before a pull.

    Exits with 1 if the signature of an image, or of the file's list of digests, is missing or invalid.

    Example: voice images verify FILE --registry 123456789012.dkr.ecr.us-east-1.amazonaws.com/production
    """
    deployment = load_deployment(file)
    if deployment.image_signing is None:
        raise create_exit(f"{file} has no image_signing, and therefore no key to verify signatures", INVALID_INPUT)
    try:
        problems = dict(signatures.check_signatures(deployment, deployment.image_signing, registry))
    except signatures.RegistryError as error:
        raise create_exit(str(error), FAILED) from None
    if as_json:
        print_json({"signed": {name: answer is None for name, answer in problems.items()}}, deployment.name)
    else:
        for name, answer in problems.items():
            mark = format_markup("[red]✗[/] {}: {}", name, answer) if answer else format_markup("[green]✓[/] {}", name)
            out.print(mark, soft_wrap=True)
    if any(problems.values()):
        raise typer.Exit(FAILED)


def _resolve_revision(revision: str) -> str:
    """Return the short name of a commit.

    For an installed package, return its release; outside of a repository, return the given value.
    """
    if IS_INSTALLED and revision == "HEAD":
        return f"v{version('voice-serve')}"  # the folder of an installed package may be in another repository
    command = ["git", "-C", str(IMAGES_FOLDER), "rev-parse", "--short=12", "--verify", "--quiet", revision]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  no shell
    return result.stdout.strip() or revision


def _format_result(result: ImageResult) -> Text:
    size = f"{result.size_gib:.3f} GiB of {result.budget_gib} GiB"
    times = f"built in {result.build_s:.0f} s, ran in {result.smoke_s:.0f} s"
    return format_markup("[green]✓[/] {}: {}, {}", result.name, size, times)


def _describe_image(spec: ImageSpec) -> Text:
    """Return a readable description of an image."""
    return format_markup(
        "[bold]{}[/]  {}\n  {}\n  from      {}\n  versions  {}\n  run by    {}",
        spec.name,
        f"{spec.kind}, {' '.join(spec.platforms)}, at most {spec.size.budget_gib:g} GiB",
        spec.summary,
        " ".join(_format_base_lines(spec)),
        ", ".join(f"{name} {version}" for name, version in _find_catalogue_versions(spec).items()) or "none",
        spec.run_by,
    )


def _find_catalogue_versions(spec: ImageSpec) -> dict[str, str]:
    """Return the catalogue versions of an image's engines and bases."""
    names = [spec.upstream] if isinstance(spec, MirroredImage) else [*spec.bases.values(), *spec.versions.values()]
    return {name: engine.version for name in names if (engine := catalog.engines().get(name))}


def _format_base_lines(spec: ImageSpec) -> list[str]:
    return [
        find_upstream_reference(name)
        for name in ([spec.upstream] if isinstance(spec, MirroredImage) else spec.bases.values())
    ]


def _serialize_image(spec: ImageSpec) -> dict[str, object]:
    return {
        "image": spec.name,
        "kind": spec.kind,
        "from": _format_base_lines(spec),
        "versions": _find_catalogue_versions(spec),
        "platforms": list(spec.platforms),
        "size_budget_gib": spec.size.budget_gib,
        "ports": {name: port.number for name, port in zip(spec.ports, spec.resolved_ports, strict=True)},
        "user_id": spec.user_id,
        "clouds": list(spec.clouds),
        "run_by": spec.run_by,
    }
