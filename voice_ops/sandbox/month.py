"""Rehearses the first month of a deployment on the local AWS: day-2 operations with the `voice` commands."""

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from voice_blueprint.aws import names
from voice_blueprint.contract.images import Image
from voice_blueprint.contract.network import Tier
from voice_blueprint.file.model.aws import AsrFleet
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import list_asr_images, list_required_images
from voice_blueprint.observability.aws.rollouts import list_rollback_alarms
from voice_ops.aws.account import Account, create_deployment_session
from voice_ops.aws.artifacts import find_fleet_artifacts
from voice_ops.output import format_type_counts
from voice_ops.restore.command import restore_store
from voice_ops.restore.snapshots import create_snapshot
from voice_ops.rollout.aws import deploy_and_monitor
from voice_ops.rollout.plan import plan_rollouts
from voice_ops.rotate.passwords import add_password, list_state_store_users, remove_old_passwords
from voice_ops.synthesis import synthesize, synthesize_templates
from voice_ops.teardown.command import tear_down_aws
from voice_sandbox.aws.cloudformation.template import find_dependencies, sort_by_dependency
from voice_sandbox.aws.process import LocalAws
from voice_sandbox.rehearsals.alert_drill import DrillError
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import Cdk, CdkError
from voice_sandbox.rehearsals.claim import VerificationResult

RehearsalStep = Callable[[], Iterator[VerificationResult]]
IMAGE_PARAMETER_TEMPLATE = "/rehearsal/{fleet}"
"""Template for the name of the parameter that contains a fleet's machine images."""
SNAPSHOT_NAME = "before-the-loss"
SERVE_STEP_LABEL = "digests: hosts come up, and deletion is refused from now on"
BAD_IMAGE_STEP_LABEL = "a rollout that an alarm rolls back"
REDIS_SERVER_EXECUTABLE = "redis-server"
IMAGE_MANIFEST = '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}'
"""Manifest of an image that is pushed between two deployments."""


def find_last_created_resource(template: Mapping[str, Any]) -> str:
    """Return the logical id of the resource that CloudFormation creates last."""
    return sort_by_dependency(find_dependencies(template["Resources"]))[-1]


def describe_group_hosts(aws: LocalAws, group: str, region: str | None = None) -> dict[str, tuple[str, str]]:
    """Return the machine image and user data of each host in a group, including the warm pool, by instance id."""
    ec2, client = aws.client("ec2", region), aws.client("autoscaling", region)
    (result,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    boots = {}
    for host in [*result["Instances"], *client.describe_warm_pool(AutoScalingGroupName=group)["Instances"]]:
        id_ = host["InstanceId"]
        instance = ec2.describe_instances(InstanceIds=[id_])["Reservations"][0]["Instances"][0]
        script = ec2.describe_instance_attribute(InstanceId=id_, Attribute="userData")["UserData"]["Value"]
        boots[id_] = (instance["ImageId"], base64.b64decode(script).decode())
    return boots


def fail_first_deploy(deployment: Deployment, rehearsal: Rehearsal) -> None:
    """Deploy all stacks with a fault in the edge stack's last resource, so that the next deploy is a second attempt.

    Raises:
        DrillError: The deploy did not fail, or failed for another reason.
    """
    edge = names.build_stack_name(deployment, "edge")
    rehearsal.faults.write_text(f"{edge}/{find_last_created_resource(synthesize_templates(deployment)[edge])}\n")
    try:
        rehearsal.cdk.deploy()
    except CdkError as error:
        if "a fault injected by a drill" not in str(error):
            raise
    else:
        raise DrillError(f"{edge} was created although one of its resources failed")
    finally:
        rehearsal.faults.unlink()


class OperationsRehearsal:
    """Rehearses a month of operations in one region of a deployed file, with changes to the first ASR fleet.

    Placeholders replace missing digests and machine images of the file. Rollouts do not pause.

    Args:
        deployment: The file in that region, as ``Deployment.split_by_region`` returns it.

    Attributes:
        steps: Operations by name, in order. Each operation yields its checks.
    """

    def __init__(self, deployment: Deployment, rehearsal: Rehearsal) -> None:
        self._rehearsal, self._aws, self._region = rehearsal, rehearsal.aws, deployment.aws.region
        fleet = deployment.aws.asr[0]
        self._fleet, self._group = fleet.name, names.build_group_name(deployment, fleet.name)
        self._stack = names.build_stack_name(deployment, names.build_fleet_stack_suffix(fleet.name))
        self._now = add_first_deploy_settings(deployment)
        self._fleets = (names.VAD_FLEET, *(each.name for each in deployment.aws.asr))
        self.steps: dict[str, RehearsalStep] = {
            SERVE_STEP_LABEL: self._start_hosts,
            BAD_IMAGE_STEP_LABEL: self._roll_back_image,
            "a new machine image": self._replace_image,
            "new passwords": self._rotate_passwords,
            "a snapshot and a restore from it": self._restore_store,
            "teardown": self._tear_down,
            "a second deployment: retained resources are imported": self._redeploy,
        }

    def run_step(self, step: RehearsalStep) -> list[VerificationResult]:
        """Run a step with the credentials of an operator in the environment, and return its checks."""
        before = dict(os.environ)
        try:
            environment = self._aws.build_environment(self._rehearsal.home)
            os.environ.clear()
            os.environ.update(environment)
            return list(step())
        finally:
            os.environ.clear()
            os.environ.update(before)

    def _start_hosts(self) -> Iterator[VerificationResult]:
        for name in self._fleets:
            self._publish_image(name)
        cdk = Cdk(self._aws, self._now, self._rehearsal.home)
        cdk.use_assembly(Path(synthesize(self._now, self._rehearsal.home / f"served-{self._region}").directory))
        cdk.deploy_only("--all")
        yield from self._rehearsal.verify(self._now)

    def _roll_back_image(self) -> Iterator[VerificationResult]:
        before, (image, *_) = self._describe_group_hosts(), list_asr_images(self._now.aws.asr[0])
        broken_deployment = self._now.model_copy(update={"images": {**self._now.images, image: f"sha256:{'b' * 64}"}})
        alarm, *_ = list_rollback_alarms(broken_deployment, Tier.ASR, self._fleet)
        set_state = partial(self._get_client("cloudwatch").set_alarm_state, AlarmName=alarm, StateReason="a rehearsal")
        set_state(StateValue="ALARM")
        message = ""
        try:
            self._deploy_and_roll_out(broken_deployment)
        except CdkError as error:
            message = str(error)
        set_state(StateValue="OK")
        (stack,) = self._get_client("cloudformation").describe_stacks(StackName=self._stack)["Stacks"]
        yield VerificationResult(f"{alarm} ends it, and is named", alarm in message)
        yield VerificationResult(f"{self._stack} goes back", stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE")
        yield VerificationResult(
            f"hosts of {self._group} run what they ran",
            set(self._describe_group_hosts().values()) == set(before.values()),
        )

    def _replace_image(self) -> Iterator[VerificationResult]:
        before, image = self._describe_group_hosts(), self._publish_image(self._fleet)
        fleet, *others = self._now.aws.asr
        patched_fleet = fleet.model_copy(
            update={"machine_image": f"{IMAGE_PARAMETER_TEMPLATE.format(fleet=fleet.name)}:2"}
        )
        self._now = _replace_aws_settings(self._now, asr=(patched_fleet, *others))
        self._deploy_and_roll_out(self._now)
        after = self._describe_group_hosts()
        yield VerificationResult(
            f"every host of {self._group} is another one", bool(after) and not after.keys() & before.keys()
        )
        yield VerificationResult(f"they boot from {image}", {image_id for image_id, _ in after.values()} == {image})

    def _rotate_passwords(self) -> Iterator[VerificationResult]:
        account, counts = self._create_account(self._now), []
        for step in (add_password, remove_old_passwords):
            for user in list_state_store_users(account):
                step(account, user)
            counts.append({user.password_count for user in list_state_store_users(account)})
            account.redeploy_services()
        yield VerificationResult("two passwords let each user in meanwhile, and one at the end", counts == [{2}, {1}])

    def _restore_store(self) -> Iterator[VerificationResult]:
        before, account = self._describe_group_hosts(), self._create_account(self._now)
        self._send_store_command(account, "SET session:7 open")
        create_snapshot(account, SNAPSHOT_NAME, None)
        state = self._now.aws.state.model_copy(update={"restore_from": SNAPSHOT_NAME})
        self._now = _replace_aws_settings(self._now, state=state)
        account = self._create_account(self._now)
        restore_store(account)
        group = names.build_state_group_id(self._now)
        (replication_groups,) = self._get_client("elasticache").describe_replication_groups()["ReplicationGroups"]
        parameter = self._get_client("ssm").get_parameter(Name=names.build_state_host_parameter_name(self._now))[
            "Parameter"
        ]["Value"]
        yield VerificationResult(f"{group} is there, and no other", replication_groups["ReplicationGroupId"] == group)
        yield VerificationResult(
            "hosts read its endpoint", parameter == replication_groups["NodeGroups"][0]["PrimaryEndpoint"]["Address"]
        )
        yield VerificationResult("no host is replaced", self._describe_group_hosts() == before)
        if shutil.which(REDIS_SERVER_EXECUTABLE):
            yield VerificationResult(
                "its sessions are there", self._send_store_command(account, "GET session:7") == "open"
            )

    def fail_over(self) -> Iterator[VerificationResult]:
        """Fail over the primary node of the store, for a game day. This operation is not a step of the month."""
        account, group = self._create_account(self._now), names.build_state_group_id(self._now)
        client = self._get_client("elasticache")
        self._send_store_command(account, "SET session:7 open")

        def primary() -> tuple[str, str]:
            (shard,) = client.describe_replication_groups(ReplicationGroupId=group)["ReplicationGroups"][0][
                "NodeGroups"
            ]
            (node,) = (each["CacheClusterId"] for each in shard["NodeGroupMembers"] if each["CurrentRole"] == "primary")
            return node, shard["PrimaryEndpoint"]["Address"]

        before = primary()
        client.test_failover(ReplicationGroupId=group, NodeGroupId="0001")
        after = primary()
        yield VerificationResult(f"{after[0]} takes over from {before[0]}", after[0] != before[0])
        yield VerificationResult("hosts and gateways keep the address that they have", after[1] == before[1])
        if shutil.which(REDIS_SERVER_EXECUTABLE):
            yield VerificationResult(
                "its sessions are there", self._send_store_command(account, "GET session:7") == "open"
            )

    def _tear_down(self) -> Iterator[VerificationResult]:
        report: dict[str, Any] = {}
        stores = {names.build_state_group_id(self._now), names.build_state_user_prefix(self._now)}
        is_removed = tear_down_aws(self._now, report, dry_run=False, confirm=False, as_json=True)
        self._get_client("ssm").delete_parameters(
            Names=[IMAGE_PARAMETER_TEMPLATE.format(fleet=name) for name in self._fleets]
        )
        remaining = self._rehearsal.count_remaining_resources(self._region)
        yield VerificationResult(f"only retained resources remain: {format_type_counts(remaining)}", is_removed)
        snapshot_names = {
            each["SnapshotName"] for each in self._get_client("elasticache").describe_snapshots()["Snapshots"]
        }
        yield VerificationResult(
            "each store has a final snapshot", {f"{store}-final" for store in stores} <= snapshot_names
        )
        yield from (VerificationResult(f"{resource.id} is gone", passed=False) for resource in report["left"]["behind"])
        succeeded = tear_down_aws(self._now, {}, dry_run=False, confirm=False, as_json=True)
        yield VerificationResult("a repeated teardown succeeds", succeeded)

    def _redeploy(self) -> Iterator[VerificationResult]:
        for name in self._fleets:
            for _ in range(self._get_image_version(name)):
                self._publish_image(name)
        ecr, repository = self._get_client("ecr"), f"{self._now.name}/{Image.GATEWAY}"
        ecr.put_image(repositoryName=repository, imageManifest=IMAGE_MANIFEST, imageTag="of-the-first-deployment")
        store = f"{names.build_state_group_id(self._now)}-final"
        self._now = _replace_aws_settings(
            self._now, state=self._now.aws.state.model_copy(update={"restore_from": store})
        )
        cdk = Cdk(self._aws, self._now, self._rehearsal.home)
        cdk.use_assembly(Path(synthesize(self._now, self._rehearsal.home / f"again-{self._region}").directory))
        cdk.deploy_again()
        yield from self._rehearsal.verify(self._now)
        tags = [each.get("imageTag") for each in ecr.list_images(repositoryName=repository)["imageIds"]]
        yield VerificationResult(
            f"{repository} has the images of the first deployment", "of-the-first-deployment" in tags
        )
        if shutil.which(REDIS_SERVER_EXECUTABLE):
            account = self._create_account(self._now)
            yield VerificationResult(
                "sessions of the last snapshot are there", self._send_store_command(account, "GET session:7") == "open"
            )
        yield from self._tear_down()

    def _get_image_version(self, fleet: str) -> int:
        """Return the version number of the parameter that contains a fleet's machine image."""
        aws = self._now.aws
        image = next((each.machine_image for each in aws.asr if each.name == fleet), aws.vad.machine_image)
        return int(str(image).rpartition(":")[2])

    def _get_client(self, service: str) -> Any:  # noqa: ANN401  clients of boto3 have no static type
        return self._aws.client(service, self._region)

    def _describe_group_hosts(self) -> dict[str, tuple[str, str]]:
        return describe_group_hosts(self._aws, self._group, self._region)

    def _create_account(self, deployment: Deployment) -> Account:
        return Account(deployment, synthesize_templates(deployment), create_deployment_session(deployment))

    def _deploy_and_roll_out(self, deployment: Deployment) -> None:
        account = self._create_account(deployment)
        for _, location, _ in find_fleet_artifacts(account):
            bucket, _, name = location.removeprefix("s3://").partition("/")
            # The marker that a fleet's job would write, since no machine boots here.
            self._get_client("s3").put_object(Bucket=bucket, Key=f"{name}/complete", Body=b"complete")
        deploy_and_monitor(account, plan_rollouts(account), lambda: "")

    def _publish_image(self, fleet: str) -> str:
        parameter, ssm = IMAGE_PARAMETER_TEMPLATE.format(fleet=fleet), self._get_client("ssm")
        parameters = ssm.get_parameters(Names=[parameter])["Parameters"]
        name = f"{fleet}-{parameters[0]['Version'] + 1 if parameters else 1}"
        image: str = self._get_client("ec2").register_image(Name=name, RootDeviceName="/dev/xvda")["ImageId"]
        ssm.put_parameter(Name=parameter, Value=image, Type="String", Overwrite=True)
        return image

    def _send_store_command(self, account: Account, command: str) -> str:
        """Send a command to the store and return the reply, or an empty string if there is no Redis server."""
        socket = self._rehearsal.home / f"{names.build_state_group_id(account.deployment)}.sock"
        if not shutil.which(REDIS_SERVER_EXECUTABLE):
            return ""
        cli = ["redis-cli", "-s", str(socket), *command.split()]
        return subprocess.run(cli, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  redis-cli


def add_first_deploy_settings(deployment: Deployment) -> Deployment:
    """Return the deployment as it is after a first deploy, with digests, machine images and hosts."""
    placeholder_digests = {
        image: f"sha256:{number:064x}" for number, image in enumerate(list_required_images(deployment), start=1)
    }
    images: dict[Image, str] = {**placeholder_digests, **deployment.images}
    aws = deployment.aws
    return _replace_aws_settings(
        deployment.model_copy(update={"images": images}),
        deletion_protection=True,
        rollout=aws.rollout.model_copy(update={"checkpoint_pause_s": 0, "bake_s": 0}),
        vad=aws.vad.model_copy(update={"machine_image": _build_image_reference(names.VAD_FLEET)}),
        asr=tuple(_make_fleet_runnable(fleet) for fleet in aws.asr),
    )


def _make_fleet_runnable(fleet: AsrFleet) -> AsrFleet:
    bounds = fleet.hosts.model_copy(update={"min": max(1, fleet.hosts.min)})
    return fleet.model_copy(update={"hosts": bounds, "machine_image": _build_image_reference(fleet.name)})


def _build_image_reference(fleet: str) -> str:
    return f"{IMAGE_PARAMETER_TEMPLATE.format(fleet=fleet)}:1"


def _replace_aws_settings(deployment: Deployment, **settings: object) -> Deployment:
    return deployment.model_copy(update={"aws_section": deployment.aws.model_copy(update=settings)})
