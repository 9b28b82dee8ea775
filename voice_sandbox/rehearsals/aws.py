"""Rehearses a deployment in its own local AWS, from the bootstrap to an empty account."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import TracebackType
from typing import Self

import boto3

from voice_blueprint.aws import names
from voice_blueprint.file.model.deployment import Deployment
from voice_sandbox.aws.inventory import collect_resource_ids, count_added_resources
from voice_sandbox.aws.process import LocalAws
from voice_sandbox.rehearsals.alert_drill import AlertDrill, AlertMessage
from voice_sandbox.rehearsals.cdk import Cdk, CdkError
from voice_sandbox.rehearsals.claim import VerificationResult
from voice_sandbox.rehearsals.drill import Drill, ScenarioResult
from voice_sandbox.rehearsals.verify_edge import EdgeVerifier
from voice_sandbox.rehearsals.verify_fleets import FleetVerifier


class Rehearsal:
    """Creates a deployment in a local AWS, verifies it, runs drills, and destroys it.

    Use it as a context manager, which always removes the local AWS and its folder.

    Args:
        real_hosts: Whether machines complete lifecycle hooks; otherwise, simulated hosts do.
        real_stores: Whether each replication group has a Redis server, at ``<group>.sock`` in `home`.

    Attributes:
        aws: The local AWS.
        cdk: The CDK CLI, configured for the local AWS.
        home: Folder of the CLI's caches.
        faults: File of resources that cannot be created, one ``stack/logical id`` per line, which a drill may write.
    """

    def __init__(self, deployment: Deployment, *, real_hosts: bool = False, real_stores: bool = False) -> None:
        self._deployment = deployment
        self._regions = deployment.split_by_region()
        self.home = Path(mkdtemp(prefix="voice-sandbox-"))
        try:
            self.faults = self.home / "faults"
            domain = deployment.aws.edge.domain
            self.aws = LocalAws(
                self.home / "aws.log",
                region=deployment.aws.region,
                hosted_zone=(domain.zone_id, domain.zone_name) if domain else None,
                real_hosts=real_hosts,
                stores=self.home if real_stores else None,
                faults=self.faults,
            )
        except BaseException as error:  # such as Ctrl-C; there is no `with` block yet that removes the folder
            rmtree(self.home, ignore_errors=True)
            if isinstance(error, RuntimeError):
                raise CdkError(str(error)) from error
            raise
        self.cdk = Cdk(self.aws, deployment, self.home)
        self.session = self.aws.create_session()
        self._initial_inventory: dict[str, set[str]] = {}
        self._is_kept = False

    def bootstrap(self) -> None:
        """Set up the account as an operator does before the first deployment, and record its inventory."""
        self.cdk.bootstrap()
        webhook = self._deployment.aws.observability.chat_webhook_secret
        for regional in self._regions:
            if webhook is None:
                break
            secrets = self._create_session(regional).client("secretsmanager", endpoint_url=self.aws.endpoint)
            secrets.create_secret(Name=webhook, SecretString="https://chat.invalid/webhook")
        self._initial_inventory = self._collect_inventory()

    def count_resources(self) -> dict[str, Counter[str]]:
        """Count the resources that CloudFormation reports, by stack and type."""
        prefix = names.build_stack_name(self._deployment, "")
        counts: dict[str, Counter[str]] = {}
        for regional in self._regions:
            client = self._create_session(regional).client("cloudformation", endpoint_url=self.aws.endpoint)
            for stack in client.describe_stacks()["Stacks"]:
                if stack["StackName"].startswith(prefix):
                    resources = client.describe_stack_resources(StackName=stack["StackName"])["StackResources"]
                    counts[stack["StackName"]] = Counter(resource["ResourceType"] for resource in resources)
        return dict(sorted(counts.items()))

    def verify(self, deployment: Deployment | None = None) -> list[VerificationResult]:
        """Compare the deployed system with a deployment, by default the rehearsal's own."""
        return [
            claim
            for regional in (deployment or self._deployment).split_by_region()
            for verifier in (FleetVerifier, EdgeVerifier)
            for claim in verifier(regional, self._create_session(regional), self.aws.endpoint).verify()
        ]

    def run_drills(self) -> Iterator[ScenarioResult]:
        """Run every scaling scenario in each region."""
        for regional in self._regions:
            session = self._create_session(regional)
            yield from Drill(
                regional,
                cloudwatch=session.client("cloudwatch", endpoint_url=self.aws.endpoint),
                autoscaling=session.client("autoscaling", endpoint_url=self.aws.endpoint),
            ).run()

    def trigger_alert(self) -> AlertMessage:
        """Trigger the composite alarm "callers are affected" in the first region, and return the notification."""
        return AlertDrill(
            self._regions[0],
            cloudwatch=self.session.client("cloudwatch", endpoint_url=self.aws.endpoint),
            sns=self.session.client("sns", endpoint_url=self.aws.endpoint),
        ).run()

    def count_remaining_resources(self, region: str | None = None) -> Counter[str]:
        """Count the resources that were added after the bootstrap by kind, in all regions or in one.

        Global resources are always included.
        """
        return count_added_resources(self._initial_inventory, self._collect_inventory(region))

    def _create_session(self, regional: Deployment) -> boto3.Session:
        return self.aws.create_session(regional.aws.region)

    def _collect_inventory(self, region: str | None = None) -> dict[str, set[str]]:
        """Return the resources in all regions, or in one region. Global resources are included in either case."""
        ids_by_kind: dict[str, set[str]] = {}
        for regional in (each for each in self._regions if region in {None, each.aws.region}):
            for kind, ids in collect_resource_ids(self._create_session(regional), self.aws.endpoint).items():
                ids_by_kind.setdefault(kind, set()).update(ids)
        return ids_by_kind

    def keep_running(self) -> None:
        """Keep the local AWS and its folder when the `with` block ends."""
        self._is_kept = True

    def build_tool_environment(self) -> dict[str, str]:
        """Return the environment variables that make an AWS tool use the local AWS."""
        environment = self.aws.build_environment(self.home)
        return {name: value for name, value in environment.items() if name.startswith("AWS_")}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_kept:
            self.aws.release()
            return
        ended = self.aws.exit_code
        self.aws.stop()
        rmtree(self.home, ignore_errors=True)
        if isinstance(error, Exception) and ended is not None:
            raise CdkError(
                f"the local AWS exited during the rehearsal (exit code {ended}), and its state is lost: run "
                "the command again; if it exits again, this machine has too little memory"
            ) from error
