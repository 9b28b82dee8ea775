"""`voice images`: container images, how each gets into a registry, a build of those that need none; machine images."""

import subprocess
from typing import Annotated

import typer
from rich.markup import escape

from blueprint import catalog, signing
from blueprint.contract.images import Image
from blueprint.images import FOLDER, BuiltImage, ImageSpec, MirroredImage, specs, upstream
from ops.exits import FAILED, HELP, REFUSED
from ops.findings import load
from ops.images import commands, signatures
from ops.images.rehearsal import RehearsalError, Rehearsed, rehearsal, rehearse
from ops.options import DeploymentFile, Json
from ops.output import empty_table, err, out, print_json, stop

app = typer.Typer(
    help="List the container images, print how to publish one, rehearse their build; propose machine images.",
    epilog=HELP,
    add_completion=False,
)

Registry = Annotated[str, typer.Option(help="Host of ACR, or of ECR with the prefix of the repositories.")]
Name = Annotated[Image, typer.Argument(metavar="NAME", help="Image, such as asr-vllm.")]


@app.callback(invoke_without_command=True, epilog=HELP)
def list_images(context: typer.Context, as_json: Json = False) -> None:
    """List every image: kind, base, versions, platforms, size budget and who runs it.

    Example: voice images --json
    """
    if context.invoked_subcommand:
        return
    if as_json:
        print_json({"images": [_as_dict(spec) for spec in specs().values()]})
        return
    for image in Image:
        spec = specs().get(image)
        out.print("\n".join(_lines(spec)) if spec else f"[bold]{image}[/]  not built yet", soft_wrap=True)


@app.command("build-args", epilog=HELP)
def build_args(  # noqa: PLR0917  Typer's parameters
    name: Name,
    registry: Registry,
    digest: Annotated[
        list[str],
        typer.Option(help="sha256:... of the base or upstream image; ARGUMENT=sha256:... where there are several."),
    ],
    revision: Annotated[str, typer.Option(help="Commit of this repository that is built.")] = "HEAD",
    tool: Annotated[str, typer.Option(help="docker (buildx) or buildah, for images with a Dockerfile.")] = "docker",
    through: Annotated[
        str | None, typer.Option(help="Registry that this machine reaches; a private ACR imports the build from there.")
    ] = None,
) -> None:
    """Print the exact commands that put one image into a registry.

    Example: voice images build-args router --digest sha256:... --registry voice.azurecr.io
    """
    spec = specs().get(name)
    if spec is None:
        raise stop(f"{name} has no image.yaml yet", REFUSED)
    if tool not in commands.TOOLS:
        raise stop(f"{tool} is no tool that builds; choose {' or '.join(commands.TOOLS)}", REFUSED)
    try:
        digests = commands.given_digests(spec, digest)
    except commands.WrongDigestError as error:
        raise stop(str(error), REFUSED) from None
    host, _, prefix = registry.partition("/")
    if prefix and commands.is_azure(registry):
        raise stop(f"{registry}: pods pull images from an ACR without a prefix; take --registry {host}", REFUSED)
    if through and not commands.is_azure(registry):
        raise stop(f"{registry} is no ACR, and only ACR imports; leave --through out", REFUSED)
    for command in commands.push_commands(spec, digests, registry, _commit(revision), tool=tool, through=through):
        typer.echo(commands.shell(command))


@app.command("rehearse", epilog=HELP)
def rehearse_images(
    name: Annotated[list[Image] | None, typer.Argument(metavar="[NAME]...", help="Images; all that can be.")] = None,
    as_json: Json = False,
) -> None:
    """Build and run, on this machine, each image whose base is a plain distribution. Needs root and Debian's archive.

    Example: voice images rehearse pd-router
    """
    wanted = [spec for image, spec in specs().items() if not name or image in name]
    chosen = [spec for spec in wanted if isinstance(spec, BuiltImage) and spec.buildable_offline]
    if name and len(chosen) < len(set(name)):
        raise stop("a mirrored image, or one over another publisher's, cannot be built without its registry", REFUSED)
    try:
        with rehearsal(lambda text: err.print(escape(text), soft_wrap=True)) as stage:
            results = [rehearse(spec, stage) for spec in chosen]
    except RehearsalError as error:
        raise stop(str(error), FAILED) from None
    if as_json:
        print_json({"images": [vars(result) for result in results]})
        return
    for result in results:
        out.print(_outcome(result), soft_wrap=True)


@app.command("ami", epilog=HELP)
def propose_machine_images(file: DeploymentFile, as_json: Json = False) -> None:
    """Propose the newest machine image for each fleet: one that its pipeline has baked, else one of AWS.

    Asks the deployment's account, and changes nothing. Exits with 1 when a fleet has none.

    Example: voice images ami deployments/production-us-east-1.yaml
    """
    # Imported here: the other commands of this group need no cloud.
    from ops.aws.account import Account, sign_in  # noqa: PLC0415
    from ops.aws.refusals import ERRORS, failed  # noqa: PLC0415
    from ops.images.ami import proposals  # noqa: PLC0415

    deployment = load(file)
    if deployment.aws_half is None:
        raise stop(f"{file}: has no section `aws`, and so no machine images", REFUSED)
    try:
        found = list(proposals(Account(deployment, {}, sign_in(deployment))))
    except ERRORS as error:
        raise failed(error) from None
    if as_json:
        print_json({"fleets": found}, deployment.name)
    else:
        table = empty_table("machine_image of each fleet", ["fleet", "in the file", "proposed"], [], "which is")
        for each in found:
            row = (each.in_file or "AWS's newest", each.proposed or "none", f"{each.made}, {each.since}".strip(", "))
            table.add_row(each.fleet, *map(escape, row))
        out.print(table)
    if not all(each.proposed for each in found):
        raise typer.Exit(FAILED)


@app.command("manifest", epilog=HELP)
def print_manifest(file: DeploymentFile) -> None:
    """Print what the key of image_signing signs: the file's digests, in one line of JSON.

    Example: voice images manifest FILE | cosign sign-blob --key awskms:///alias/images -
    """
    typer.echo(signing.manifest(load(file).images), nl=False)


@app.command("verify", epilog=HELP)
def verify_images(file: DeploymentFile, registry: Registry, as_json: Json = False) -> None:
    """Ask a registry whether the key of image_signing has signed each image of a file, as hosts do before they pull.

    Exits with 1 when one is not signed, or when the file's own list of digests is not.

    Example: voice images verify FILE --registry 123456789012.dkr.ecr.us-east-1.amazonaws.com/production
    """
    deployment = load(file)
    if deployment.image_signing is None:
        raise stop(f"{file}: has no image_signing, and so no key that could have signed", REFUSED)
    try:
        answers = dict(signatures.answers(deployment, deployment.image_signing, registry))
    except signatures.RegistryError as error:
        raise stop(str(error), FAILED) from None
    if as_json:
        print_json({"signed": {name: answer is None for name, answer in answers.items()}}, deployment.name)
    else:
        for name, answer in answers.items():
            out.print(f"[red]✗[/] {name}: {escape(answer)}" if answer else f"[green]✓[/] {name}", soft_wrap=True)
    if any(answers.values()):
        raise typer.Exit(FAILED)


def _commit(revision: str) -> str:
    """Return the short name of a commit; outside a repository, what was given."""
    command = ["git", "-C", str(FOLDER), "rev-parse", "--short=12", "--verify", "--quiet", revision]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  nothing of a shell
    return done.stdout.strip() or revision


def _outcome(result: Rehearsed) -> str:
    return (
        f"[green]✓[/] {result.name}: {result.size_gib:.3f} GiB of {result.budget_gib} GiB, "
        f"built in {result.build_s:.0f} s, ran in {result.smoke_s:.0f} s"
    )


def _lines(spec: ImageSpec) -> list[str]:
    """Describe one image for a person."""
    return [
        f"[bold]{spec.name}[/]  {spec.kind}, {' '.join(spec.platforms)}, at most {spec.size.budget_gib:g} GiB",
        f"  {escape(spec.summary)}",
        f"  from      {' '.join(_froms(spec))}",
        f"  versions  {', '.join(f'{name} {version}' for name, version in _versions(spec).items())}",
        f"  run by    {escape(spec.run_by)}",
    ]


def _versions(spec: ImageSpec) -> dict[str, str]:
    """Return the catalogue's versions of everything that an image is made of."""
    names = [spec.upstream] if isinstance(spec, MirroredImage) else [*spec.bases.values(), *spec.versions.values()]
    return {name: engine.version for name in names if (engine := catalog.engines().get(name))}


def _froms(spec: ImageSpec) -> list[str]:
    return [upstream(name) for name in ([spec.upstream] if isinstance(spec, MirroredImage) else spec.bases.values())]


def _as_dict(spec: ImageSpec) -> dict[str, object]:
    return {
        "image": spec.name,
        "kind": spec.kind,
        "from": _froms(spec),
        "versions": _versions(spec),
        "platforms": list(spec.platforms),
        "size_budget_gib": spec.size.budget_gib,
        "ports": {name: port.number for name, port in zip(spec.ports, spec.port_numbers, strict=True)},
        "user_id": spec.user_id,
        "clouds": list(spec.clouds),
        "run_by": spec.run_by,
    }
