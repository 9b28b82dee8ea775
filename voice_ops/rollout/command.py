"""`voice rollout`: show the hosts or pods that a deploy replaces, and monitor their replacement."""

from pathlib import Path
from typing import Annotated

import typer

from voice_ops.exits import INVALID_INPUT
from voice_ops.findings import load_region_deployments
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import create_exit


def rollout(
    file: DeploymentFileArgument,
    *,
    deploy: Annotated[
        bool, typer.Option("--deploy", help="AWS: deploy the stacks, and follow their instance refreshes.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Azure: follow the rollout that `pulumi up` started until every pod is replaced."
        ),
    ] = False,
    probe: Annotated[
        str | None,
        typer.Option(
            "--probe", metavar="URL", help="Session API for a test call before the rollout and after each replacement."
        ),
    ] = None,
    auth: Annotated[str | None, typer.Option(help="Authorizer of the probe's API, as in `voice call`.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable that contains the key or token.")
    ] = None,
    recording: Annotated[Path | None, typer.Option(help="Recording for the probe, PCM.")] = None,
    transcript: Annotated[Path | None, typer.Option(help="Text file with the transcript of the recording.")] = None,
    start: Annotated[
        str | None, typer.Option(metavar="LABEL", help="AWS: start a rollout under this label, such as a revision.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="AWS: continue the current rollout.")] = False,
    current: Annotated[
        bool, typer.Option("--current", help="AWS: print the label of the current rollout, if there is one.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0, help="Maximum duration of --start and --resume.")] = 40,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which hosts a deploy would replace, or deploy and follow the replacement.

    Shows order, duration, additional vCPUs, and the alarms that roll the replacement back. With --deploy it deploys the
    stacks and follows their instance refreshes. CloudFormation rolls back when an alarm fires; with --probe also when a
    call has a higher word error rate or latency than before. Stacks whose update is already complete are not rolled
    back, but named. Exits with 1 if the rollout was rolled back or a probe failed, or, before a deploy, if the quota is
    too small or artifacts of a fleet are missing from the bucket. Regions are deployed in the file's order; a rollback
    in one ends the rollout.

    Pipelines whose credentials expire use --start LABEL and then --resume: each deploys for --minutes and exits, while
    CloudFormation continues. They exit with 0 if every stack is deployed, with 75 if the rollout continues, and with 1
    if it was rolled back. --resume requires the file of the revision that was started; --current prints its label.

    For Azure it shows the Deployments whose pods `pulumi up` would replace, and the settings that differ. Kubernetes
    performs the rollout: --follow shows its progress, and exits with 1 if a Deployment does not complete in time.

    Example: voice rollout deployments/production-us-east-1.yaml --deploy
    """
    first, *others = regions = load_region_deployments(file, region)
    if sum((deploy, start is not None, resume, current)) > 1:
        raise create_exit(
            "--deploy, --start, --resume and --current exclude each other; give one of them", INVALID_INPUT
        )
    if probe and (start is not None or resume):
        raise create_exit(
            "--probe requires --deploy, which waits until the end; use `voice call` after --resume", INVALID_INPUT
        )
    if first.aws_section is None:
        if deploy or probe or start or resume or current:
            raise create_exit(
                f"{file}: on Azure Pulumi deploys and Kubernetes replaces the pods: run `pulumi -C "
                "stacks/voice_stacks/azure/workloads up --policy-pack ../policy`, then `voice rollout FILE --follow`",
                INVALID_INPUT,
            )
        # Imported here, since each cloud needs an extra of its own.
        from voice_ops.rollout.azure import roll_out_on_azure  # noqa: PLC0415

        roll_out_on_azure(first, follow=follow, as_json=as_json)
        return
    if follow:
        raise create_exit(f"{file}: --follow watches pods of Azure; on AWS take --deploy", INVALID_INPUT)
    if probe and others:
        raise create_exit(
            "--probe calls one region: name it with --region, and roll out one after the other", INVALID_INPUT
        )
    from voice_ops.rollout.aws import ProbeOptions, roll_out_on_aws  # noqa: PLC0415
    from voice_ops.rollout.parts import RolloutPart, find_current_rollout_label, run_part_on_aws  # noqa: PLC0415

    if current:
        typer.echo(find_current_rollout_label(regions))
        return
    if resume or start is not None:
        if start == "":
            raise create_exit("--start needs a label, such as the revision that is rolled out", INVALID_INPUT)
        run_part_on_aws(regions, RolloutPart(start or "", minutes))
        return
    roll_out_on_aws(
        regions, ProbeOptions(probe, auth, api_key_env, recording, transcript), deploy=deploy, as_json=as_json
    )
