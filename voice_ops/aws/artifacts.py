"""Checks whether jobs have uploaded the artifacts for fleets, such as weights and compiled programs."""

from collections.abc import Iterator

from botocore.exceptions import ClientError

from voice_blueprint.aws import names
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.hosts import format_artifacts_name, lacks_digests, list_asr_images
from voice_ops.aws.account import Account
from voice_ops.aws.refusals import get_error_code


def find_fleet_artifacts(account: Account) -> Iterator[tuple[AsrFleet, str, bool]]:
    """Yield each fleet that uses artifacts, the location of its artifacts, and whether they are complete.

    Artifacts count as incomplete until the stack that contains the bucket is deployed.
    """
    deployment, registry = account.deployment, names.build_stack_name(account.deployment, "registry")
    ids = account.fetch_physical_ids(registry) if registry in account.fetch_stack_statuses() else {}
    resources = account.templates[registry]["Resources"].items()
    (bucket,) = (ids.get(logical) for logical, each in resources if each["Type"] == "AWS::S3::Bucket")
    for fleet in deployment.aws.asr:
        if fleet.artifacts and not lacks_digests(deployment, list_asr_images(fleet)):
            name = format_artifacts_name(deployment, fleet)
            if bucket is None:
                yield fleet, name, False
            else:
                yield fleet, f"s3://{bucket}/{name}", _has_complete_artifacts(account, bucket, name)


def format_artifacts_instructions(account: Account, fleet: AsrFleet) -> str:
    """Return instructions for creating a fleet's artifacts."""
    job = names.build_job_template_name(account.deployment, fleet.name)
    return (
        f"deploy {names.build_stack_name(account.deployment, 'asr')}, then run the job of {fleet.name}: "
        f"aws ec2 run-instances --launch-template LaunchTemplateName={job}"
    )


def _has_complete_artifacts(account: Account, bucket: str, name: str) -> bool:
    try:
        account.session.client("s3").head_object(Bucket=bucket, Key=f"{name}/complete")
    except ClientError as error:
        if get_error_code(error) != "404":
            raise
        return False
    return True
