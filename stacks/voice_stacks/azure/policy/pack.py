"""Pulumi policies for all rules. They read Pulumi's resources and report the findings."""

import functools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_policy.policy
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.deserialize import deserialize_properties

import voice_blueprint
from voice_blueprint.checks import CHECKS, Check
from voice_blueprint.file.model.deployment import Deployment
from voice_stacks.azure.policy import (
    admission,
    alerting,
    answers,
    caches,
    callers,
    capacity,
    cloud,
    drains,
    exposure,
    foundations,
    grants,
    limits,
    memory,
    placement,
    probes,
    programs,
    references,
    rollouts,
    routing,
    serving,
    telemetry,
    volumes,
    wiring,
    workload_identities,
)
from voice_stacks.azure.policy.cluster import build_cluster
from voice_stacks.azure.policy.rules import Resource, Rule, Stack, Violation
from voice_stacks.azure.policy.values import Value

RULE_MODULES = (
    cloud,
    foundations,
    placement,
    memory,
    caches,
    serving,
    limits,
    wiring,
    exposure,
    probes,
    answers,
    drains,
    alerting,
    telemetry,
    references,
    volumes,
    rollouts,
    capacity,
    callers,
    admission,
    workload_identities,
    programs,
    grants,
    routing,
)


@functools.lru_cache(maxsize=1024)
def _deserialize(serialized: bytes) -> dict[str, Any]:
    return deserialize_properties(MessageToDict(Struct.FromString(serialized)))


def _deserialize_struct(struct: Struct) -> dict[str, Any]:
    return _deserialize(struct.SerializeToString(deterministic=True))


def _return_unchanged(value: dict[str, Any]) -> dict[str, Any]:
    return value


# pulumi-policy parses all resources again for each policy, and wraps them in proxies that raise an error for unknown
# values, which takes most of a preview's time. Here, each resource is parsed once, and rules use the known values.
vars(pulumi_policy.policy).update(
    json_format=SimpleNamespace(MessageToDict=_deserialize_struct),
    deserialize_properties=_return_unchanged,
    unknown_checking_proxy=_return_unchanged,
)


def create_rule(check: Check) -> Rule:
    """Return a rule that applies a check on the deployment file to resources. The rule has the check's id."""

    def find_violations(stack: Stack) -> Iterator[Violation]:
        urns = {resource.urn for resource in stack.resources}
        for violation in check.check_cluster(build_cluster(stack)) if check.check_cluster else ():
            if (urn := str(violation.location[0])) in urns:
                yield Violation(urn, f"{violation.message}; {violation.remedy}")

    return Rule(check.id, check.description, "", check.source, find_violations, requires_stack=True)


RULES = (
    *(value for module in RULE_MODULES for value in vars(module).values() if isinstance(value, Rule)),
    *(create_rule(check) for check in CHECKS if check.check_cluster),
)
"""All rules in reporting order: first errors that only a program can cause, then errors in the file."""

ACCEPTABLE_RULE_IDS = {check.id for check in CHECKS if check.check_cluster and check.is_acceptable}
"""Names of the rules whose findings a deployment file may accept."""
DEPLOYMENT_KEY_SUFFIX = ":deployment"
"""Suffix of the configuration key with the deployment file, in both projects."""


def policies(folder: Path = Path(__file__).parent) -> list[Policy]:
    """Return all rules as policies. A finding that the deployment file accepts is only a warning.

    Args:
        folder: Folder of the pack, which is next to the projects' folders. Relative paths in a project's configuration
            are resolved in this folder.
    """
    deployment = load_configured_deployment(folder)
    accepted = {check.id for check in deployment.accepted_checks} if deployment else set()
    return [
        (_build_stack_policy if rule.requires_stack else _build_resource_policy)(
            rule,
            EnforcementLevel.ADVISORY if rule.name in accepted & ACCEPTABLE_RULE_IDS else EnforcementLevel.MANDATORY,
            deployment,
        )
        for rule in RULES
    ]


def load_configured_deployment(folder: Path = Path(__file__).parent) -> Deployment | None:
    """Load the deployment file from the stack's configuration.

    Return ``None`` if the configuration contains no file.

    Raises:
        voice_blueprint.DeploymentFileError: The file cannot be read.
    """
    configuration = pulumi.runtime.get_config_env()
    configured_files = [value for key, value in configuration.items() if key.endswith(DEPLOYMENT_KEY_SUFFIX)]
    return voice_blueprint.load((folder / configured_files[0]).resolve()) if configured_files else None


def _build_resource_policy(rule: Rule, level: EnforcementLevel, deployment: Deployment | None) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        resource = Resource(args.urn, args.resource_type, args.name, Value(args.props))
        for result in rule.find_violations(Stack((resource,), deployment)):
            report(_format_report(rule, result.message), None)

    return ResourceValidationPolicy(
        rule.name, rule.summary, validate, level, remediation_steps=rule.remedy, url=rule.source
    )


def _build_stack_policy(rule: Rule, level: EnforcementLevel, deployment: Deployment | None) -> Policy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        for result in rule.find_violations(Stack(_read_resources(args), deployment)):
            report(_format_report(rule, result.message), result.urn)

    return StackValidationPolicy(
        rule.name, rule.summary, validate, level, remediation_steps=rule.remedy, url=rule.source
    )


def _read_resources(args: StackValidationArgs) -> tuple[Resource, ...]:
    return tuple(
        Resource(
            resource.urn,
            resource.resource_type,
            resource.name,
            Value(resource.props),
            {name: tuple(need.urn for need in needs) for name, needs in resource.property_dependencies.items()},
        )
        for resource in args.resources
    )


def _format_report(rule: Rule, message: str) -> str:
    return f"{message}; {rule.remedy}" if rule.remedy else message
