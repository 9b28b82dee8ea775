"""`voice preflight`: check an account before a deploy."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from voice_blueprint.file.model.deployment import Deployment
from voice_ops.exits import FAILED, INVALID_INPUT
from voice_ops.findings import load_region_deployment
from voice_ops.options import DeploymentFileArgument, JsonOption, RegionOption
from voice_ops.output import create_exit, err, format_markup, out, print_error, print_json
from voice_ops.preflight.models import (
    FILE_AREA,
    MODELS_AREA,
    check_call_capacity,
    check_deployment_file,
    check_licences,
    check_model_access,
)
from voice_ops.preflight.quota import QUOTA_TOPIC_SUFFIX
from voice_ops.preflight.report import (
    CheckResult,
    CheckStatus,
    QuotaIncrease,
    QuotaIncreaseError,
    format_summary,
    print_report,
)
from voice_ops.progress import Progress
from voice_ops.synthesis import synthesize_templates
from voice_sandbox.azure.errors import EngineError

PERMISSIONS_HELP = "Print least-privilege policies for a deploy and for each command of `voice`; sends no requests."
INCREASES_HELP = "Request missing quota increases, with a confirmation for each."
YES_HELP = "Skip confirmations."
OFFLINE_HELP = "Check the file alone, without requests."


def preflight(  # noqa: PLR0917  Typer passes parameters by name
    file: DeploymentFileArgument,
    region: RegionOption = None,
    as_json: JsonOption = False,
    permissions: Annotated[bool, typer.Option("--permissions", help=PERMISSIONS_HELP)] = False,
    request_increases: Annotated[bool, typer.Option("--request-increases", help=INCREASES_HELP)] = False,
    yes: Annotated[bool, typer.Option("--yes", help=YES_HELP)] = False,
    offline: Annotated[bool, typer.Option("--offline", help=OFFLINE_HELP)] = False,
) -> None:
    """Check an account's permissions, quotas, capacity, domain and model access before a deploy.

    Uses the credentials of boto3 and of the Azure CLI. Without credentials it uses the file alone, and lists the checks
    that were skipped. Read-only, except with --request-increases. Exits with 1 if a problem blocks the deploy, if a
    check failed to run, and without credentials, unless --offline is given.

    Example: voice preflight deployments/production-us-east-1.yaml --request-increases
    """
    deployment = load_region_deployment(file, region)
    if request_increases and as_json and not yes:
        raise create_exit("--json cannot prompt; add --yes to request the increases", INVALID_INPUT)
    if request_increases and offline:
        raise create_exit("--offline sends no requests; omit --offline or --request-increases", INVALID_INPUT)
    try:
        rendered, kinds = ({}, Counter[str]()) if offline and not permissions else _synthesize_sections(deployment)
    except EngineError as error:
        raise create_exit(str(error), FAILED) from None
    if permissions:
        print_json(_build_required_permissions(deployment, rendered, kinds), deployment.name)
        return
    rows = list(_run_offline_checks(deployment)) if offline else _run_checks(deployment, rendered, kinds)
    if not as_json:
        print_report(out, rows)
        out.print(f"\n{format_summary(rows)}")
    unknown = _list_unknown_quotas(rows) if request_increases else []
    filed = _submit_increases(rows, unknown, confirm=not yes) if request_increases else []
    if as_json:
        print_json({"answers": [row.as_dict() for row in rows], "filed": filed}, deployment.name)
    if not offline and not _is_authenticated(rows):
        raise create_exit("no account was checked; sign in, or specify --offline to check only the file", FAILED)
    if unknown or any(row.status.is_failure for row in rows) or any("refused" in answer for answer in filed):
        raise typer.Exit(FAILED)


def _run_offline_checks(deployment: Deployment) -> Iterator[CheckResult]:
    yield from check_deployment_file(deployment)
    yield from check_call_capacity(deployment)
    yield from check_licences(deployment)


def _is_authenticated(rows: list[CheckResult]) -> bool:
    """Return True if at least one request to each account succeeded."""
    responses: dict[str, bool] = {}
    for row in rows:
        if row.area not in {FILE_AREA, MODELS_AREA}:
            responses[row.area] = responses.get(row.area, False) or row.status is not CheckStatus.SKIPPED
    return all(responses.values())


def _synthesize_sections(deployment: Deployment) -> tuple[dict[str, dict[str, Any]], Counter[str]]:
    """Return the templates for the AWS section and the resource types in the Azure section."""
    progress = Progress(err)
    rendered: dict[str, dict[str, Any]] = {}
    kinds: Counter[str] = Counter()
    if deployment.aws_section:
        with progress.phase("synthesize the CloudFormation templates"):
            rendered = synthesize_templates(deployment)
    if deployment.azure_section:
        from voice_sandbox.azure.project import Project  # noqa: PLC0415
        from voice_sandbox.azure.recorder import PreexistingResources, RunMode  # noqa: PLC0415
        from voice_sandbox.azure.run import run_project  # noqa: PLC0415
        from voice_sandbox.rehearsals.azure import PROJECT_FOLDERS  # noqa: PLC0415

        with progress.phase("run the cluster's Pulumi program"):
            config = {"deployment": str(Path(deployment.source.file).resolve())}
            project = Project.load(PROJECT_FOLDERS[0], deployment.name, config)
            kinds = run_project(project, RunMode.PREVIEW, PreexistingResources()).graph.count_by_type()
    return rendered, kinds


def _run_checks(deployment: Deployment, rendered: dict[str, dict[str, Any]], kinds: Counter[str]) -> list[CheckResult]:
    # Imported here, since the clouds' SDKs are large, and a deployment often needs only one of them.
    progress = Progress(err)
    rows = list(_run_offline_checks(deployment))
    with progress.phase("check access to the models"):
        rows += check_model_access(deployment)
    if deployment.aws_section:
        from voice_ops.preflight import aws  # noqa: PLC0415

        with progress.phase("query AWS"):
            rows += aws.run_preflight(deployment, rendered)
    if deployment.azure_section:
        from voice_ops.preflight import azure  # noqa: PLC0415

        with progress.phase("query Azure"):
            rows += azure.run_preflight(deployment, kinds)
    return rows


def _build_required_permissions(
    deployment: Deployment, rendered: dict[str, dict[str, Any]], kinds: Counter[str]
) -> dict[str, dict[str, object]]:
    printed: dict[str, dict[str, object]] = {}
    if deployment.aws_section:
        from voice_ops.preflight.aws import permissions as aws  # noqa: PLC0415
        from voice_ops.preflight.aws.commands import ACTIONS_BY_COMMAND  # noqa: PLC0415

        account = deployment.aws.account or "ACCOUNT"
        types = {resource["Type"] for template in rendered.values() for resource in template["Resources"].values()}
        printed["aws"] = {
            "deployer": aws.build_deployer_policy(account, deployment.aws.region),
            "cloudformation_execution": list(aws.split_into_policies(aws.list_required_actions(types))),
            "commands": {
                command: list(aws.split_into_policies(sorted(actions)))
                for command, actions in ACTIONS_BY_COMMAND.items()
            },
        }
    if deployment.azure_section:
        from voice_ops.preflight.azure import permissions as azure  # noqa: PLC0415

        printed["azure"] = {"actions": azure.list_required_actions(kinds)}
    return printed


def _list_unknown_quotas(rows: list[CheckResult]) -> list[str]:
    """Return the names of the quota checks without a result."""
    silent = {CheckStatus.SKIPPED, CheckStatus.UNKNOWN}
    return [
        f"{row.question} of {row.area}"
        for row in rows
        if row.question.endswith(QUOTA_TOPIC_SUFFIX) and row.status in silent
    ]


def _submit_increases(rows: list[CheckResult], unknown: list[str], *, confirm: bool) -> list[dict[str, object]]:
    """Request the missing increases, and return the requests for ``--json``."""
    increases = [row.increase for row in rows if row.increase]
    if unknown:
        print_error(f"required increases are unknown: there is no result for {', '.join(unknown)}")
    elif not increases:
        err.print("no increase is required: every quota is sufficient or has an open request")
    if not increases:
        return []
    for increase in increases:
        err.print(f"{increase.quota}: {increase.limit} -> {increase.desired}", soft_wrap=True)
    if confirm and not typer.confirm(f"request {len(increases)} increase(s)?", err=True):
        return []
    return [_request_increase(increase) for increase in increases]


def _request_increase(increase: QuotaIncrease) -> dict[str, object]:
    request: dict[str, object] = {"quota": increase.quota, "limit": increase.limit, "desired": increase.desired}
    try:
        command = increase.submit()
    except QuotaIncreaseError as error:
        print_error(f"{increase.quota}: {error}")
        return request | {"refused": str(error)}
    err.print(format_markup("[green]✓[/] {}: {}", increase.quota, command), soft_wrap=True)
    return request | {"answer": command}
