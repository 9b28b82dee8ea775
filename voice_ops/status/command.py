"""`voice status`: compare a running deployment with its file."""

from collections.abc import Iterator

import typer

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.exits import FAILED
from voice_ops.findings import load_region_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import err, out, print_json
from voice_ops.preflight.report import CheckResult, CheckStatus, format_summary, print_report
from voice_ops.progress import Progress


def status(file: DeploymentFileArgument, region: RegionOption = None, as_json: JsonOption = False) -> None:
    """Show the fleets, alarms, drift, image versions and cost to date of a deployment.

    For Azure it shows the cluster, its pools, and the pods, images and settings of each Deployment. Requires
    credentials with read access, and lists resources that they cannot read. Starts a drift detection in CloudFormation,
    and otherwise changes nothing; Cost Explorer charges 0.01 USD per request. Exits with 1 if a resource differs from
    the file or is in alarm, or if nothing could be read. The alarms that scale a fleet do not count: they are in alarm
    in any quiet hour.

    Example: voice status deployments/production-us-east-1.yaml
    """
    deployment = load_region_deployment(file, region)
    with Progress(err).phase("read the account"):
        rows = list(_run_status_checks(deployment))
    if as_json:
        print_json({"answers": [row.as_dict() for row in rows]}, deployment.name)
    else:
        print_report(out, rows)
        out.print(format_summary(rows))
    if not is_healthy(rows):
        raise typer.Exit(FAILED)


def is_healthy(rows: list[CheckResult]) -> bool:
    """Return True if at least one row is sufficient, and none is a warning or an error."""
    wrong = {CheckStatus.WARNING, CheckStatus.BLOCKING}
    return any(row.status is CheckStatus.PASSED for row in rows) and not any(row.status in wrong for row in rows)


def _run_status_checks(deployment: Deployment) -> Iterator[CheckResult]:
    # Imported here, since each cloud needs an extra of its own.
    if deployment.aws_section:
        from voice_ops.status.aws import check_deployment_account  # noqa: PLC0415

        yield from check_deployment_account(deployment)
    if deployment.azure_section:
        from voice_ops.status.azure import check_azure_section  # noqa: PLC0415

        yield from check_azure_section(deployment)
