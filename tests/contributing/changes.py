"""A stranger's change of each kind that CONTRIBUTING.md names: what goes into which file, and what then has to hold."""

# ruff: noqa: E501  what goes into a file stands here as it stands there

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Edit:
    """What happens to one file.

    Attributes:
        after: Text of the file that ``text`` is put behind; empty for a new file.
        instead: Whether ``text`` takes that text's place.
        then: Another edit of the same file.
    """

    text: str
    after: str = ""
    instead: bool = False
    then: "Edit | None" = None

    def of(self, old: str) -> str:
        """Return the file with the edit.

        Raises:
            ValueError: The text to edit is not there.
        """
        if self.after not in old:
            raise ValueError(f"{self.after!r} is not there any more: tests/contributing/changes.py edits it")
        new = old.replace(self.after, self.text if self.instead else self.after + self.text, 1) if old else self.text
        return self.then.of(new) if self.then else new


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
        files: By path, what a person writes.
        made: By path, arguments of ``voice`` whose output the file is (``make schema``).
        tests: What of pytest looks at it.
        plans: Deployment files that ``voice plan`` has to take.
        without: What the first complaint says when a file is forgotten, by its path.
    """

    files: Mapping[str, Edit]
    tests: tuple[str, ...]
    without: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plans: tuple[str, ...] = ()


SANDBOX = "deployments/sandbox.yaml"
INDEX = "docs/runbooks/README.md"

NEW_TYPE = """\
- {name: c8gb.12xlarge, vcpus: 48, memory_gib: 96, architecture: arm64,
   network_gbps: 60, network_queues: 8, network_queues_max: 8,
   ena_express: true, efa: false, instance_store_gb: 0, instance_store_disks: 0,
   quota_code: L-1216C47A, capacity_blocks: false,
   usd_per_hour: {us-east-1: 2.5}, price_date: "2026-11-01",
   regions: [us-east-1, us-east-2, us-west-2],
   source: "docs.aws.amazon.com/ec2/latest/instancetypes/co.html"}
"""

NEW_ALERT = """
    yield Alert(
        "sessions-flood",
        Tier.GATEWAY,
        "Callers ask for more sessions than they ever did.",
        (of_fleet(deployment, names.GATEWAY_FLEET, "SessionsRequested", "Sum"),),
        above(5, 2, 3),
        MINUTE_S,
    )
"""

RUNBOOK = """\
# sessions-flood

## What it means

Callers ask for more sessions than they ever did.

## How to see it

The metric `SessionsRequested` on the dashboard `$D-edge`.

## What to do

Read the gateway's log group.

## How to know it is over

The alarm is in the state `OK`.
"""

IMAGE = """\
name: node-exporter
kind: mirrored
summary: Publishes what a node's kernel counts
clouds: [azure]
run_by: every node of the cluster
upstream: node-exporter
platforms: [linux/amd64]
size: {budget_gib: 0.1, source: unpacked size of the publisher's image}
health: {none_because: Prometheus notices when it does not answer}
user_id: 65534
"""

NEW_CHECK = """

@check(
    "two-nat-gateways-in-production",
    "A production deployment has a NAT gateway in more than one zone.",
    source="https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-basics.html",
    level=Level.WARNING,
)
def two_nat_gateways_in_production(deployment: Deployment) -> Iterator[Violation]:
    if deployment.environment is Environment.PRODUCTION and deployment.aws.network.nat_gateways == 1:
        yield Violation(
            ("aws", "network", "nat_gateways"),
            "1 NAT gateway: the loss of its zone cuts all others off",
            "set nat_gateways to at least 2",
        )
"""

CHANGES: dict[str, Change] = {
    "a scaling threshold": Change(
        files={SANDBOX: Edit("threshold: 75", "threshold: 80", instead=True)},
        tests=("tests/stacks/aws/test_alerts_and_scaling.py",),
        plans=(SANDBOX,),
    ),
    "an alert's threshold": Change(
        files={
            "blueprint/aws/alerts/fleets.py": Edit("above(2, 1, 1)", "above(1, 1, 1)", instead=True),
            INDEX: Edit("`AsrHostsAbandoned` | above 2", "`AsrHostsAbandoned` | above 1", instead=True),
        },
        tests=("tests/stacks/aws/test_alert_table.py", "tests/blueprint/test_alerts.py"),
        without={"blueprint/aws/alerts/fleets.py": INDEX, INDEX: INDEX},
    ),
    "an instance type": Change(
        files={
            "blueprint/catalog/instance_types.yaml": Edit(NEW_TYPE, "# c8g: Graviton4\n"),
            SANDBOX: Edit("instance_type: c8gb.12xlarge", "instance_type: c8g.12xlarge", instead=True),
        },
        tests=("tests/blueprint/test_catalog.py",),
        plans=(SANDBOX,),
        without={"blueprint/catalog/instance_types.yaml": "blueprint/catalog/instance_types.yaml"},
    ),
    "a region": Change(
        files={
            "blueprint/catalog/regions.yaml": Edit(
                "- {name: mx-central-1, ena_express_across_zones: true, source: *ena-express}\n",
                "- {name: me-central-1, ena_express_across_zones: false, source: *ena-express}\n",
            ),
            "blueprint/catalog/instance_types.yaml": Edit(
                "il-central-1, mx-central-1, sa-east-1", "il-central-1, sa-east-1", instead=True
            ),
        },
        tests=("tests/blueprint/test_catalog.py",),
        without={
            "blueprint/catalog/regions.yaml": "blueprint/catalog/regions.yaml",
            "blueprint/catalog/instance_types.yaml": "blueprint/catalog/instance_types.yaml",
        },
    ),
    "an engine's version": Change(
        files={
            "blueprint/catalog/engines.yaml": Edit(
                "name: lmcache, version: 0.5.7,", "name: lmcache, version: 0.5.6,", instead=True
            ),
            "blueprint/engines/published/tables/lmcache.json": Edit(
                '"version": "0.5.7"', '"version": "0.5.6"', instead=True
            ),
            "images/asr-vllm/requirements.txt": Edit("lmcache==0.5.7", "lmcache==0.5.6", instead=True),
        },
        tests=("tests/blueprint/engines", "tests/images/test_locks.py"),
        without={
            "blueprint/catalog/engines.yaml": "blueprint/catalog/engines.yaml",
            "blueprint/engines/published/tables/lmcache.json": "make refresh-engines",
            "images/asr-vllm/requirements.txt": "make lock",
        },
    ),
    "an image": Change(
        files={
            "blueprint/contract/images.py": Edit(
                '    NODE_EXPORTER = "node-exporter"\n', '    DCGM_EXPORTER = "dcgm-exporter"\n'
            ),
            "blueprint/contract/environment.py": Edit(
                "    Image.NODE_EXPORTER: (),\n", "    Image.DCGM_EXPORTER: (),\n"
            ),
            "blueprint/catalog/engines.yaml": Edit(
                '- {name: node-exporter, version: v1.12.0, upstream_image: "quay.io/prometheus/node-exporter:v1.12.0",\n'
                '   source: "https://github.com/prometheus/node_exporter"}\n',
                "was reachable.\n\n",
            ),
            "blueprint/hosts.py": Edit(
                "Image.DCGM_EXPORTER, Image.NODE_EXPORTER)", "Image.DCGM_EXPORTER)", instead=True
            ),
            "images/node-exporter/image.yaml": Edit(IMAGE),
        },
        made={"deployments/schema.json": ("schema",), "docs/deployment-file.md": ("schema", "--markdown")},
        tests=("tests/images/test_specs.py", "tests/blueprint/test_contract.py", "tests/ops/test_schema.py"),
        without={
            "blueprint/contract/images.py": "AttributeError: NODE_EXPORTER",
            "blueprint/contract/environment.py": "blueprint/contract/environment.py",
            "blueprint/catalog/engines.yaml": "node-exporter is no engine",
            "blueprint/hosts.py": "blueprint/hosts.py",
            "images/node-exporter/image.yaml": "images/node-exporter/image.yaml",
            "deployments/schema.json": "make schema",
            "docs/deployment-file.md": "make schema",
        },
    ),
    "a metric with an alarm": Change(
        files={
            "blueprint/contract/metrics.py": Edit(
                '\n        Metric("SessionsRequested", "Count", Image.GATEWAY, "Sessions that callers asked for.", _GATEWAY),',
                '        Metric("SessionsCreated", "Count", Image.GATEWAY, "Sessions opened.", _GATEWAY),',
            ),
            "images/gateway/src/voice_gateway/session_routes.py": Edit(
                '    gateway.metrics.count("SessionsRequested")\n', "    wanted = await _read(request)\n"
            ),
            "blueprint/aws/alerts/tiers.py": Edit(
                NEW_ALERT,
                '    """Yield what callers would complain of."""\n',
            ),
            "docs/runbooks/sessions-flood.md": Edit(RUNBOOK),
            INDEX: Edit(
                "| [sessions-flood](sessions-flood.md) | Sum of `SessionsRequested` | above 5 | 2 of 3, 60 s each |  |  |\n",
                '| [callers-affected](callers-affected.md) | alarms of alerts with "yes" | any in alarm |  |  | yes |\n',
            ),
        },
        tests=(
            "tests/contract/test_published_metrics.py",
            "tests/contract/test_contract_is_kept.py",
            "tests/stacks/aws/test_alert_table.py",
        ),
        without={
            "blueprint/contract/metrics.py": "SessionsRequested",
            "images/gateway/src/voice_gateway/session_routes.py": "SessionsRequested",
            "blueprint/aws/alerts/tiers.py": "docs/runbooks/sessions-flood.md belongs to no alarm",
            "docs/runbooks/sessions-flood.md": "has no runbook docs/runbooks/sessions-flood.md",
            INDEX: "docs/runbooks/README.md",
        },
    ),
    "a check": Change(
        files={
            "blueprint/checks/network.py": Edit(
                NEW_CHECK,
                '"""AWS services that hosts call: images, logs, metrics, lifecycle hooks, secrets, Session Manager."""\n',
            ),
            "tests/blueprint/checks/cases.py": Edit(
                '    Case("two-nat-gateways-in-production", "aws.network.nat_gateways", {"aws.network.nat_gateways": 1}, {}),\n',
                "CASES: tuple[Case, ...] = (\n",
            ),
        },
        tests=("tests/blueprint/checks", "-k", "two_nat or two-nat or covers_exactly"),
        without={
            "blueprint/checks/network.py": "two-nat-gateways-in-production",
            "tests/blueprint/checks/cases.py": "two-nat-gateways-in-production",
        },
    ),
    "a cloud resource": Change(
        files={
            "constructs/voice_constructs/aws/alert_topic.py": Edit(
                "from aws_cdk import aws_sqs as sqs\n",
                "from aws_cdk import aws_sns as sns\n",
                then=Edit(
                    '        sqs.CfnQueue(self, "Unread", queue_name=f"{props.name}-unread")\n',
                    "        key.allow_publishers(PUBLISHERS)\n",
                ),
            ),
            "sandbox/aws/adapters/table.yaml": Edit(
                "AWS::SQS::Queue: {service: sqs, create: create_queue, id: '{QueueUrl}', delete: delete_queue, key: QueueUrl, name: QueueName}\n",
                "client certificates.\n",
            ),
            "tests/sandbox/aws/samples/observability.py": Edit(
                '        "Unread": resource("SQS::Queue"),\n', "    return {\n"
            ),
        },
        tests=("tests/sandbox/aws/test_adapters.py",),
        without={
            "constructs/voice_constructs/aws/alert_topic.py": "nothing in constructs/voice_constructs/aws makes these",
            "sandbox/aws/adapters/table.yaml": "these need a row in sandbox/aws/adapters/table.yaml",
            "tests/sandbox/aws/samples/observability.py": "these need a sample in tests/sandbox/aws/samples",
        },
    ),
}
