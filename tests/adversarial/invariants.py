"""Invariants of the resources synthesized from any file that passes the checks."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from ipaddress import IPv4Network
from typing import Any

from tests.contract import (
    azure_alert_rules,
    environment_rules,
    metric_rules,
    network_rules,
    runbook_rules,
    secret_rules,
)
from tests.contract.sources import DECLARED_METRICS, RUNBOOKS
from tests.contract.templates import Template, Templates, origin, resources_by_type, text
from tests.stacks.azure import manifests
from tests.stacks.azure.policy.graphs import policy_resources, violations
from tests.stacks.azure.recorded import azure_resources, inputs
from tests.synthesized import ROOT
from voice_blueprint import Deployment, catalog, checks
from voice_blueprint.aws.names import AGENT_FLEET, GATEWAY_FLEET, VAD_FLEET
from voice_blueprint.contract.network import FLOWS
from voice_blueprint.environment import VARIABLES_BY_IMAGE
from voice_blueprint.observability.aws.alerts import build_alerts
from voice_sandbox.azure.definitions import find_definition_problems as azure_problems
from voice_sandbox.azure.graph import Graph, shorten_type
from voice_stacks.azure.policy.rules import Stack as PolicyStack
from voice_userdata import calculate_max_deployed_bytes

Properties = Mapping[str, Any]
AWS_RESERVED_ADDRESSES = 5
"""Addresses that AWS reserves in every subnet. https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html"""
MAX_USER_DATA = 16 * 1024
"""Bytes. https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html"""


def _imdsv2(options: Properties) -> bool:
    return options.get("HttpTokens") == "required"


PRIVATE_PROPERTIES: Mapping[str, Callable[[Any], bool]] = {
    "EC2::LaunchTemplate": lambda of: (
        _imdsv2(of["LaunchTemplateData"]["MetadataOptions"])
        and all(disk["Ebs"]["Encrypted"] is True for disk in of["LaunchTemplateData"]["BlockDeviceMappings"])
    ),
    "ImageBuilder::InfrastructureConfiguration": lambda of: _imdsv2(of["InstanceMetadataOptions"]),
    "S3::Bucket": lambda of: (
        bool(of["BucketEncryption"]) and set(of["PublicAccessBlockConfiguration"].values()) == {True}
    ),
    "ElastiCache::ReplicationGroup": lambda of: (
        of["AtRestEncryptionEnabled"] is True and of["TransitEncryptionEnabled"] is True
    ),
    "Logs::LogGroup": lambda of: bool(of["KmsKeyId"]),
    "SNS::Topic": lambda of: bool(of["KmsMasterKeyId"]),
    "SecretsManager::Secret": lambda of: bool(of["KmsKeyId"]),
    "ECR::Repository": lambda of: of["EncryptionConfiguration"]["EncryptionType"] == "KMS",
    "KMS::Key": lambda of: of["EnableKeyRotation"] is True,
}
"""Resource types that must be private or encrypted, with a predicate for each."""


def aws_violations(templates: Templates, deployment: Deployment) -> list[str]:
    """Return the invariants that a deployment's templates violate."""
    aws = deployment.aws
    fleets = [VAD_FLEET, GATEWAY_FLEET, AGENT_FLEET, *(fleet.name for fleet in aws.asr)]
    noticed = [alert.format_alarm_name(deployment) for alert in build_alerts(deployment) if alert.affects_callers]
    unlinked = runbook_rules.violations(templates, RUNBOOKS, aws.observability.runbook_url, noticed)
    return [
        *network_rules.violations(templates, FLOWS),
        *metric_rules.violations(templates, DECLARED_METRICS, deployment=deployment.name, fleets=fleets),
        *environment_rules.violations(templates, VARIABLES_BY_IMAGE),
        *secret_rules.violations(templates),
        # A deployment without a feature has none of its alarms.
        *(found for found in unlinked if "belongs to no alarm" not in found),
        *open_or_unencrypted(templates),
        *exceeded_limits(templates, deployment),
    ]


def open_or_unencrypted(templates: Templates) -> Iterator[str]:
    """Yield hosts without IMDSv2 and unencrypted data."""
    for kind, closed in PRIVATE_PROPERTIES.items():
        for resource in resources_by_type(templates, kind):
            try:
                sound = closed(resource.properties)
            except KeyError:
                sound = False
            if not sound:
                yield f"{resource} ({kind}) is open or in the clear"


def exceeded_limits(templates: Templates, deployment: Deployment) -> Iterator[str]:
    """Yield violations of the limits on hosts, addresses, memory and user data."""
    vad = deployment.aws.vad
    pages, memory = (
        vad.huge_pages.size_mib * vad.huge_pages.count,
        catalog.instance_types()[vad.instance_type].memory_gib,
    )
    if pages >= memory * 1024:
        yield f"{pages} MiB of huge pages on a host of {memory} GiB"
    for template in resources_by_type(templates, "EC2::LaunchTemplate"):
        user_data = template.properties["LaunchTemplateData"]["UserData"]
        # The size that EC2 receives: ``text`` decompresses the steps.
        size = calculate_max_deployed_bytes(
            text(user_data.get("Fn::Base64", "") if isinstance(user_data, dict) else user_data)
        )
        if size > MAX_USER_DATA:
            yield f"{template}: {size} bytes of user data"
    hosts: dict[tuple[str, str], float] = {}
    for group in resources_by_type(templates, "AutoScaling::AutoScalingGroup"):
        if int(group.properties["MinSize"]) > int(group.properties["MaxSize"]):
            yield f"{group}: at least {group.properties['MinSize']}, at most {group.properties['MaxSize']} hosts"
        subnets = [origin(templates, group.tier, each) for each in group.properties["VPCZoneIdentifier"]]
        for subnet in filter(None, subnets):
            hosts[subnet] = hosts.get(subnet, 0) + int(group.properties["MaxSize"]) / len(subnets)
    for subnet, count in hosts.items():
        (cidr,) = (
            each.properties["CidrBlock"] for each in resources_by_type(templates, "EC2::Subnet") if each[:2] == subnet
        )
        if count > IPv4Network(cidr).num_addresses - AWS_RESERVED_ADDRESSES:
            yield f"{subnet[1]}: {count:.0f} hosts in {cidr}"


def cfn_lint(template: Template, region: str) -> list[str]:
    """Return cfn-lint's findings; named zones are deliberate, and its rules on CDK paths do not apply."""
    # Imported here because it loads sympy, which would delay each process that collects tests by seconds.
    from cfnlint.api import lint  # type: ignore[import-untyped]  # noqa: PLC0415
    from cfnlint.config import ManualArgs  # type: ignore[import-untyped]  # noqa: PLC0415

    found = lint(json.dumps(template), config=ManualArgs(regions=[region], ignore_checks=["W3010"]))
    return [f"{each.rule.id} {'/'.join(map(str, each.path))}: {each.message}" for each in found]


def azure_violations(cluster: Graph, workloads: Graph, deployment: Deployment) -> list[str]:
    """Return the invariants that a deployment's resources violate."""
    # The policies also report warnings of `voice plan` and accepted findings.
    told = {found.check.id for found in checks.run_checks(deployment)}
    found = [
        f"{rule.name}: {each.message}"
        for graph in (cluster, workloads)
        for rule, each in violations(PolicyStack(tuple(policy_resources(graph)), deployment))
        if rule.name not in told
    ]
    for resource in azure_resources(cluster):
        found += [f"{resource.name}: {each}" for each in azure_problems(shorten_type(resource.type), inputs(resource))]
    for manifest in manifests.manifests(workloads):
        if manifest["apiVersion"].split("/")[0] not in CUSTOM_API_GROUPS:
            found += _kubernetes_problems(json.dumps(manifest))
    found += [f"{pod.name} asks for more than a node has" for pod in manifests.engine_pods(workloads)
              if not _fits(pod, deployment)]  # fmt: skip
    return [*found, *_invalid_alerts(cluster), *_public_endpoints(cluster)]


@cache
def _kubernetes_problems(manifest: str) -> list[str]:
    """Return the violations of Kubernetes' schemas by an object; most objects are equal in most files."""
    read = json.loads(manifest)
    return [f"{read['kind']} {read['metadata']['name']}: {each}" for each in manifests.problems(read)]


CUSTOM_API_GROUPS = {"keda.sh", "azmonitoring.coreos.com", "secrets-store.csi.x-k8s.io"}
"""API groups that Kubernetes' own schemas do not cover."""


def _fits(pod: manifests.Pod, deployment: Deployment) -> bool:
    size = manifests.vm_size_for(pod, deployment.azure)
    return (
        pod.requested("cpu") <= size.vcpus
        and pod.requested("memory") <= size.memory_gib * manifests.GIB
        and pod.requested("nvidia.com/gpu") <= size.gpu_count
    )


def _invalid_alerts(cluster: Graph) -> Iterator[str]:
    yield from azure_alert_rules.unpublished_metrics(cluster)
    for rule in azure_alert_rules.rules(cluster):
        if "alert" in rule:
            page = re.search(r"/azure/([\w-]+)\.md$", rule["annotations"].get("runbook", ""))
            if not page or not (ROOT / f"docs/runbooks/azure/{page[1]}.md").exists():
                yield f"{rule['alert']} has no runbook"


def _public_endpoints(cluster: Graph) -> Iterator[str]:
    """Yield public API servers, and public addresses that serve neither egress nor Bastion."""
    for each in cluster.find_resources_of_type("containerservice:ManagedCluster"):
        access = inputs(each)["apiServerAccessProfile"]
        ranges = access.get("authorizedIPRanges") or []
        if not access.get("enablePrivateCluster") and (not ranges or "0.0.0.0/0" in ranges):
            yield f"{each.name}: anybody may ask its API server"
    doors = ("network:NatGateway", "network:BastionHost")
    used = {
        urn
        for kind in doors
        for door in cluster.find_resources_of_type(kind)
        for urn in cluster.find_all_dependencies(door.urn)
    }
    for address in cluster.find_resources_of_type("network:PublicIPAddress"):
        if address.urn not in used:
            yield f"{address.name} is a public address of neither"
