"""An example of each kind of change in CONTRIBUTING.md: edits of files, and the tests that must pass."""

# ruff: noqa: E501  file contents are not wrapped

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Edit:
    """An edit of one file.

    Attributes:
        after: Text of the file after which ``text`` is inserted; empty for a new file.
        instead: Whether ``text`` replaces ``after``.
        before: Whether ``text`` is inserted before ``after``.
        then: Another edit of the same file.
    """

    text: str
    after: str = ""
    instead: bool = False
    before: bool = False
    then: "Edit | None" = None

    def apply(self, old: str) -> str:
        """Return the file with the edit.

        Raises:
            ValueError: The text to edit is missing.
        """
        if self.after not in old:
            raise ValueError(f"{self.after!r} is missing, and tests/contributing/changes.py edits it")
        edited = self.text if self.instead else self.text + self.after if self.before else self.after + self.text
        new = old.replace(self.after, edited, 1) if old else self.text
        return self.then.apply(new) if self.then else new


@dataclass(frozen=True)
class Change:
    """A kind of change with an example.

    Attributes:
        files: Edits by path.
        made: Python arguments that generate the file (``make generate``), by path.
        tests: The pytest arguments that cover it.
        plans: Deployment files that ``voice plan`` must accept.
        without: First error message if a file is omitted, by path.
    """

    files: Mapping[str, Edit]
    tests: tuple[str, ...]
    without: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plans: tuple[str, ...] = ()


SANDBOX = "deployments/sandbox.yaml"
PRODUCTION = "deployments/production-us-east-1.yaml"
PRODUCTION_AZURE = "deployments/production-azure.yaml"
VOICE = ("-c", "from voice_ops.main import main; main()")
SCHEMA = (*VOICE, "schema")
DIAGRAM = (*VOICE, "diagram", PRODUCTION, "--output", "docs/architecture.svg")
PAGE = ("-m", "voice_ops.reference")
REFERENCES = "tests/test_site.py::test_the_references_match_the_code"
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

NEW_SIZE = """

- {name: Standard_D8xs_v5, vcpus: 8, memory_gib: 32, network_gbps: 12.5, rdma: false,
   quota_family: standardDXSv5Family, capacity_reservation: true, spot: true,
   usd_per_hour: {southcentralus: 0.542, westeurope: 0.544, westus3: 0.452}, price_date: "2026-06-18", source: "https://azure.microsoft.com/pricing/details/virtual-machines/linux/"}"""

NEW_GPU = """\
- {name: B300, memory_gib: 270.0, compute_capability: [10, 3], memory_gb_per_s: 8000, bf16_tflops: 2250, nvlink_gb_per_s: 900,
   source: "https://www.nvidia.com/en-us/data-center/dgx-b300/"}
"""

NEW_MODEL = """\
- {name: qwen4-8b, repository: Qwen/Qwen4-8B, task: chat, architecture: decoder-only, served_by: vllm, weights_gib: 15.26,
   bf16_only_gib: 2.32, layers: 36, attention_heads: 32, kv_heads: 8, head_dim: 128, max_context_tokens: 40960,
   licence: Apache-2.0, commercial_use: true, source: "https://huggingface.co/Qwen/Qwen4-8B"}
"""

NEW_ALERT = """
    yield Alert(
        "sessions-flood",
        Tier.GATEWAY,
        "Callers ask for more sessions than they ever did.",
        (build_fleet_series(deployment, names.GATEWAY_FLEET, "SessionsRequested", "Sum"),),
        build_above_threshold_rule(5, 2, 3),
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

Read the gateway's log group. No cause found within 30 minutes: escalate to the owner of the platform.

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

NEW_AZURE_ALERT = """\
        yield Alert(
            "nodes-many",
            "The cluster has more nodes than the deployment may have.",
            f"sum({ClusterMetric.NODE_INFO})",
            Comparison.ABOVE,
            100,
            1,
        )
"""

NEW_RULE = """

@rule(
    "support-plan-is-known",
    "Clusters have a support plan that is generally available.",
    remedy="remove supportPlan",
    source="https://learn.microsoft.com/azure/aks/long-term-support",
)
def support_plan_is_known(stack: Stack) -> Iterator[Violation]:
    for cluster in stack.find_resources(":ManagedCluster"):
        if cluster.props["supportPlan"].text == "Preview":
            yield Violation(cluster.urn, f"cluster {cluster.name} has the support plan Preview")
"""

COMMAND = '''\
"""`voice hello`: greet."""

from voice_ops.output import out


def hello() -> None:
    """Greet.

    Example: voice hello
    """
    out.print("hello")
'''

NEW_CHECK = """

@deployment_check(
    "two-nat-gateways-in-production",
    "A production deployment has a NAT gateway in more than one zone.",
    source="https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateway-basics.html",
    level=Severity.WARNING,
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
    "a setting of a shipped file, such as a scaling threshold": Change(
        files={
            PRODUCTION: Edit("threshold: 69\n", "threshold: 70\n", instead=True),
            PRODUCTION_AZURE: Edit("replicas: {min: 3, max: 8}", "replicas: {min: 2, max: 8}", instead=True),
        },
        made={"docs/architecture.svg": DIAGRAM},
        tests=("tests/blueprint", "tests/stacks/aws", "tests/ops/test_diagram.py", "tests/ops/simulate"),
        plans=(PRODUCTION, PRODUCTION_AZURE),
    ),
    "an alert's threshold on AWS": Change(
        files={
            "voice_blueprint/observability/aws/alerts/fleets.py": Edit(
                "build_above_threshold_rule(2, 1, 1)", "build_above_threshold_rule(1, 1, 1)", instead=True
            ),
            INDEX: Edit("`AsrHostsAbandoned` | above 2", "`AsrHostsAbandoned` | above 1", instead=True),
        },
        tests=("tests/stacks/aws/test_alert_table.py", "tests/blueprint/test_alerts.py"),
        without={"voice_blueprint/observability/aws/alerts/fleets.py": INDEX, INDEX: INDEX},
    ),
    "an instance type": Change(
        files={
            "voice_blueprint/catalog/instance_types.yaml": Edit(NEW_TYPE, "# c8g: Graviton4\n"),
            SANDBOX: Edit("instance_type: c8gb.12xlarge", "instance_type: c8g.12xlarge", instead=True),
        },
        tests=("tests/blueprint/test_catalog.py",),
        plans=(SANDBOX,),
        without={"voice_blueprint/catalog/instance_types.yaml": "voice_blueprint/catalog/instance_types.yaml"},
    ),
    "a region": Change(
        files={
            "voice_blueprint/catalog/regions.yaml": Edit(
                "- {name: mx-central-1, ena_express_across_zones: true, source: *ena-express}\n",
                "- {name: me-central-1, ena_express_across_zones: false, source: *ena-express}\n",
            ),
            "voice_blueprint/catalog/instance_types.yaml": Edit(
                "il-central-1, mx-central-1, sa-east-1", "il-central-1, sa-east-1", instead=True
            ),
        },
        tests=("tests/blueprint/test_catalog.py",),
        without={
            "voice_blueprint/catalog/regions.yaml": "voice_blueprint/catalog/regions.yaml",
            "voice_blueprint/catalog/instance_types.yaml": "voice_blueprint/catalog/instance_types.yaml",
        },
    ),
    "an engine's version": Change(
        files={
            "voice_blueprint/catalog/engines.yaml": Edit(
                'name: lmcache, version: 0.5.7, package: lmcache, upstream_image: "docker.io/lmcache/standalone:v0.5.7"',
                'name: lmcache, version: 0.5.6, package: lmcache, upstream_image: "docker.io/lmcache/standalone:v0.5.6"',
                instead=True,
            ),
            "voice_blueprint/engines/published/tables/lmcache.json": Edit(
                '"version": "0.5.7"', '"version": "0.5.6"', instead=True
            ),
            "voice_blueprint/catalog/publishers.yaml": Edit("version: 0.5.7\n", "version: 0.5.6\n", instead=True),
            "images/asr-vllm/requirements.txt": Edit("lmcache==0.5.7", "lmcache==0.5.6", instead=True),
        },
        tests=("tests/blueprint/engines", "tests/images/test_locks.py", "tests/images/test_publishers.py"),
        without={
            "voice_blueprint/catalog/engines.yaml": "voice_blueprint/catalog/engines.yaml",
            "voice_blueprint/catalog/publishers.yaml": "voice_blueprint/catalog/publishers.yaml",
            "voice_blueprint/engines/published/tables/lmcache.json": "make refresh-engines",
            "images/asr-vllm/requirements.txt": "make lock",
        },
    ),
    "an image": Change(
        files={
            "voice_blueprint/contract/images.py": Edit(
                '    NODE_EXPORTER = "node-exporter"\n', '    DCGM_EXPORTER = "dcgm-exporter"\n'
            ),
            "voice_blueprint/contract/environment.py": Edit(
                "    Image.NODE_EXPORTER: (),\n", "    Image.DCGM_EXPORTER: (),\n"
            ),
            "voice_blueprint/catalog/engines.yaml": Edit(
                '- {name: node-exporter, version: v1.12.0, upstream_image: "quay.io/prometheus/node-exporter:v1.12.0",\n'
                '   source: "https://github.com/prometheus/node_exporter"}\n',
                "was reachable.\n\n",
            ),
            "voice_blueprint/hosts.py": Edit(
                "Image.DCGM_EXPORTER, Image.NODE_EXPORTER)", "Image.DCGM_EXPORTER)", instead=True
            ),
            "images/node-exporter/image.yaml": Edit(IMAGE),
        },
        made={
            "deployments/schema.json": SCHEMA,
            "docs/deployment-file.md": (*PAGE, "deployment-file"),
            "docs/reference/commands.md": (*PAGE, "reference/commands"),
        },
        tests=(
            "tests/images/test_specs.py",
            "tests/blueprint/test_contract.py",
            "tests/ops/test_schema.py",
            REFERENCES,
        ),
        without={
            "voice_blueprint/contract/images.py": "AttributeError: NODE_EXPORTER",
            "voice_blueprint/contract/environment.py": "voice_blueprint/contract/environment.py",
            "voice_blueprint/catalog/engines.yaml": "node-exporter is no engine",
            "voice_blueprint/hosts.py": "voice_blueprint/hosts.py",
            "images/node-exporter/image.yaml": "images/node-exporter/image.yaml",
            "deployments/schema.json": "make generate",
            "docs/deployment-file.md": "make generate",
            "docs/reference/commands.md": "make generate",
        },
    ),
    "a metric with an alarm on AWS": Change(
        files={
            "voice_blueprint/contract/metrics.py": Edit(
                '\n        Metric("SessionsRequested", "Count", Image.GATEWAY, "Sessions that callers asked for.", _GATEWAY_TIERS),',
                '        Metric("SessionsCreated", "Count", Image.GATEWAY, "Sessions opened.", _GATEWAY_TIERS, is_summable=True),',
            ),
            "images/gateway/src/voice_gateway/session_routes.py": Edit(
                '    gateway.metrics.count("SessionsRequested")\n',
                "    session = await open_session(gateway, caller, session_request)\n",
            ),
            "voice_blueprint/observability/aws/alerts/tiers.py": Edit(
                NEW_ALERT,
                '    """Yield the alerts on sessions, transcripts and the REST API."""\n',
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
            "voice_blueprint/contract/metrics.py": "SessionsRequested",
            "images/gateway/src/voice_gateway/session_routes.py": "SessionsRequested",
            "voice_blueprint/observability/aws/alerts/tiers.py": "docs/runbooks/sessions-flood.md belongs to no alarm",
            "docs/runbooks/sessions-flood.md": "has no runbook docs/runbooks/sessions-flood.md",
            INDEX: "docs/runbooks/README.md",
        },
    ),
    "a check": Change(
        files={
            "voice_blueprint/checks/aws/network.py": Edit(
                NEW_CHECK,
                '"""AWS services that hosts call for images, logs, metrics, lifecycle hooks, secrets and Session Manager."""\n',
            ),
            "tests/blueprint/checks/cases.py": Edit(
                '    Case("two-nat-gateways-in-production", "aws.network.nat_gateways", {"aws.network.nat_gateways": 1}, {}),\n',
                "CASES: tuple[Case, ...] = (\n",
            ),
        },
        tests=("tests/blueprint/checks", "-k", "two_nat or two-nat or covers_exactly"),
        without={
            "voice_blueprint/checks/aws/network.py": "two-nat-gateways-in-production",
            "tests/blueprint/checks/cases.py": "two-nat-gateways-in-production",
        },
    ),
    "a cloud resource on AWS": Change(
        files={
            "constructs/voice_constructs/aws/alert_topic.py": Edit(
                "from aws_cdk import aws_sqs as sqs\n",
                "from aws_cdk import aws_sns as sns\n",
                then=Edit(
                    '        sqs.CfnQueue(self, "Unread", queue_name=f"{props.name}-unread")\n',
                    "        key.allow_publishers(PUBLISHERS)\n",
                ),
            ),
            "voice_sandbox/aws/adapters/table.yaml": Edit(
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
            "voice_sandbox/aws/adapters/table.yaml": "these need a row in voice_sandbox/aws/adapters/table.yaml",
            "tests/sandbox/aws/samples/observability.py": "these need a sample in tests/sandbox/aws/samples",
        },
    ),
    "a VM size": Change(
        files={
            "voice_blueprint/catalog/vm_sizes.yaml": Edit(NEW_SIZE, "\n- {name: Standard_D8ds_v5,", before=True),
            PRODUCTION_AZURE: Edit("vm_size: Standard_D8xs_v5", "vm_size: Standard_D8ds_v5", instead=True),
        },
        tests=("tests/blueprint/test_catalog_azure.py",),
        plans=(PRODUCTION_AZURE,),
        without={"voice_blueprint/catalog/vm_sizes.yaml": "voice_blueprint/catalog/vm_sizes.yaml"},
    ),
    "a GPU": Change(
        files={
            "voice_blueprint/catalog/gpus.yaml": Edit(NEW_GPU, "- {name: A100-80,", before=True),
            "voice_blueprint/catalog/vm_sizes.yaml": Edit("gpu: B300,", "gpu: A100-80,", instead=True),
            "tests/blueprint/test_catalog_azure.py": Edit(
                '"B300": 288, ', "boxes = {", then=Edit('"B300", ', "ada_and_newer = {")
            ),
        },
        tests=("tests/blueprint/test_catalog_azure.py",),
        without={
            "voice_blueprint/catalog/gpus.yaml": "test_every_gpu_of_a_vm_size_is_in_the_catalogue",
            "tests/blueprint/test_catalog_azure.py": "test_gpus_report_less_memory_than_advertised",
        },
    ),
    "a model": Change(
        files={"voice_blueprint/catalog/models.yaml": Edit(NEW_MODEL, "- {name: voxtral-small-24b,", before=True)},
        made={
            "deployments/schema.json": SCHEMA,
            "docs/deployment-file/azure-services.md": (*PAGE, "deployment-file/azure-services"),
            "docs/deployment-file/azure-callers.md": (*PAGE, "deployment-file/azure-callers"),
            "docs/deployment-file/aws-callers.md": (*PAGE, "deployment-file/aws-callers"),
            "docs/deployment-file/aws-fleets.md": (*PAGE, "deployment-file/aws-fleets"),
            "docs/deployment-file/azure.md": (*PAGE, "deployment-file/azure"),
        },
        tests=("tests/blueprint/test_catalog_azure.py", "tests/ops/test_schema.py", REFERENCES),
        without={"deployments/schema.json": "make generate"},
    ),
    "an alert on Azure": Change(
        files={
            "voice_blueprint/observability/azure/alerts.py": Edit(
                NEW_AZURE_ALERT, '            unit=" GPUs expected",\n        )\n'
            ),
            "docs/runbooks/azure/nodes-many.md": Edit(RUNBOOK),
            "tests/contract/azure_alert_cases.py": Edit(
                '    Case("nodes-many", _set_all("kube_node_info", "200"), 1),\n',
                '    Case("engine-restarts", _set_all("restarts_total", "0+4x90"), 2),\n',
            ),
        },
        made={"docs/reference/azure-alerts.md": (*PAGE, "reference/azure-alerts")},
        tests=("tests/contract/test_azure_alerts.py", REFERENCES),
        without={
            "voice_blueprint/observability/azure/alerts.py": "nodes-many",
            "docs/runbooks/azure/nodes-many.md": "nodes-many",
            "tests/contract/azure_alert_cases.py": "nodes-many",
            "docs/reference/azure-alerts.md": "make generate",
        },
    ),
    "a policy rule on Azure": Change(
        files={
            "stacks/voice_stacks/azure/policy/cloud.py": Edit(
                NEW_RULE,
                '"""Types of resources with data. They have ``publicNetworkAccess`` at one of two locations."""\n',
            ),
            "tests/stacks/azure/policy/mutations.py": Edit(
                '    Mutation("preview channel", CLUSTER, change_cluster(supportPlan="Preview"), ("support-plan-is-known",)),\n',
                "MUTATIONS = (\n",
            ),
        },
        tests=("tests/stacks/azure/policy/test_mutations.py", "-k", "every_rule or preview"),
        without={
            "stacks/voice_stacks/azure/policy/cloud.py": "preview channel",
            "tests/stacks/azure/policy/mutations.py": "support-plan-is-known",
        },
    ),
    "a setting of the gateway": Change(
        files={
            "voice_blueprint/file/model/edge.py": Edit(
                '    greeting_ms: int = Field(default=0, ge=0, le=5000)\n    """Delay before the first event, milliseconds."""\n',
                '    """Lifetime of a session token, seconds."""\n',
            ),
            "images/gateway/src/voice_gateway/settings.py": Edit(
                "    greeting_ms: int = Field(default=0, ge=0)\n", "    end_of_turn_ms: int = Field(ge=0)\n"
            ),
        },
        made={
            "deployments/schema.json": SCHEMA,
            "docs/deployment-file/aws-callers.md": (*PAGE, "deployment-file/aws-callers"),
            "docs/deployment-file/azure-callers.md": (*PAGE, "deployment-file/azure-callers"),
        },
        tests=(
            "tests/contract/test_programs.py",
            "tests/contract/test_contract_is_kept.py",
            "tests/stacks/aws/test_gateway.py",
            "tests/stacks/azure/test_callers.py",
            "tests/ops/test_schema.py",
            REFERENCES,
        ),
        without={
            "voice_blueprint/file/model/edge.py": "VOICE_GREETING_MS",
            "images/gateway/src/voice_gateway/settings.py": "VOICE_GREETING_MS",
            "deployments/schema.json": "make generate",
            "docs/deployment-file/aws-callers.md": "make generate",
        },
    ),
    "a field of the session API": Change(
        files={
            "voice_blueprint/contract/session_api.py": Edit(
                '        "label": {"type": "string", "maxLength": 64, "description": "Text for your own use."},\n',
                '    "required": ["transport"],\n    "properties": {\n',
            ),
            "images/gateway/src/voice_gateway/session_routes.py": Edit(
                "    label: Annotated[str, Field(max_length=64)] | None = None\n",
                '    transport: Literal["websocket", "srtp"]\n',
            ),
        },
        made={"docs/reference/session-api.md": (*PAGE, "reference/session-api")},
        tests=(
            "images/gateway/tests/test_session_api.py::test_requests_match_the_api_schema",
            "tests/stacks/aws/test_session_api.py::test_requests_are_validated",
            REFERENCES,
        ),
        without={
            "voice_blueprint/contract/session_api.py": "label",
            "images/gateway/src/voice_gateway/session_routes.py": "label",
            "docs/reference/session-api.md": "make generate",
        },
    ),
    "a sub-command": Change(
        files={
            "voice_ops/hello/__init__.py": Edit('"""`voice hello`: greet."""\n'),
            "voice_ops/hello/command.py": Edit(COMMAND),
            "voice_ops/cli.py": Edit(
                '    "hello": "Greet.",\n',
                "COMMANDS = {\n",
                then=Edit('"checks", "hello", "cost"', '"checks", "cost"', instead=True),
            ),
            "tests/ops/test_screens.py": Edit('    "hello": ["hello"],\n', "COMMAND_LINES = {\n"),
        },
        made={"docs/reference/commands.md": (*PAGE, "reference/commands")},
        tests=(
            "tests/ops/test_cli.py",
            "tests/ops/test_screens.py",
            "tests/test_architecture.py",
            REFERENCES,
            "-k",
            "panel or folder_with or references or exit_codes",
        ),
        without={
            "voice_ops/hello/command.py": "hello",
            "voice_ops/cli.py": "hello",
            "docs/reference/commands.md": "make generate",
        },
    ),
}
