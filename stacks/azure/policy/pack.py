"""The rules as policies of Pulumi's: thin wrappers that read what Pulumi sends and report what the rules find."""

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

import blueprint
from blueprint.checks import AZURE_CHECKS, Check
from blueprint.file.model.deployment import Deployment
from stacks.azure.policy import caches, cloud, exposure, foundations, life, limits, memory, placement, serving, wiring
from stacks.azure.policy.cluster import cluster_of
from stacks.azure.policy.rules import Found, Resource, Rule, Stack
from stacks.azure.policy.values import Value

MODULES = (cloud, foundations, placement, memory, caches, serving, limits, wiring, exposure, life)


@functools.lru_cache(maxsize=1024)
def _read(serialized: bytes) -> dict[str, Any]:
    return deserialize_properties(MessageToDict(Struct.FromString(serialized)))


def _properties(struct: Struct) -> dict[str, Any]:
    return _read(struct.SerializeToString(deterministic=True))


def _as_it_is(value: dict[str, Any]) -> dict[str, Any]:
    return value


# pulumi-policy reads every resource anew for each policy, and wraps it in proxies that raise where a value is unknown,
# which takes most of a preview's time. Here each is read once; rules work with what is known.
vars(pulumi_policy.policy).update(
    json_format=SimpleNamespace(MessageToDict=_properties),
    deserialize_properties=_as_it_is,
    unknown_checking_proxy=_as_it_is,
)


def rule_of(check: Check) -> Rule:
    """Return a check of the deployment file as a rule over what is emitted: the same judgement, the same id."""

    def examine(stack: Stack) -> Iterator[Found]:
        urns = {resource.urn for resource in stack.resources}
        for violation in check.judge(cluster_of(stack)) if check.judge else ():
            if (urn := str(violation.location[0])) in urns:
                yield Found(urn, f"{violation.message}; {violation.remedy}")

    return Rule(check.id, check.about, "", check.source, examine, sees_stack=True)


RULES = (
    *(value for module in MODULES for value in vars(module).values() if isinstance(value, Rule)),
    *(rule_of(check) for check in AZURE_CHECKS if check.judge),
)
"""Every rule, in the order of reporting: what only a program can get wrong, then what a file can."""

ACCEPTABLE = {check.id for check in AZURE_CHECKS if check.judge and check.acceptable}
"""Rules whose findings a deployment file may accept, as it may those of the check."""
DEPLOYMENT_KEY = ":deployment"
"""How the key of the configuration ends that names the deployment file, in both projects."""


def policies() -> list[Policy]:
    """Return every rule as a policy; what the deployment file accepts only advises."""
    deployment = configured_deployment()
    accepted = {check.id for check in deployment.accepted_checks} if deployment else set()
    return [
        (_on_stack if rule.sees_stack else _on_resource)(
            rule,
            EnforcementLevel.ADVISORY if rule.name in accepted & ACCEPTABLE else EnforcementLevel.MANDATORY,
            deployment,
        )
        for rule in RULES
    ]


def configured_deployment() -> Deployment | None:
    """Load the deployment file that the stack's configuration names; ``None`` where there is no configuration.

    Raises:
        blueprint.DeploymentFileError: The file cannot be read.
    """
    configuration = pulumi.runtime.get_config_env()
    named = [value for key, value in configuration.items() if key.endswith(DEPLOYMENT_KEY)]
    # A relative path starts at the project's folder, which lies beside this one.
    return blueprint.load((Path(__file__).parent / named[0]).resolve()) if named else None


def _on_resource(rule: Rule, level: EnforcementLevel, deployment: Deployment | None) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        resource = Resource(args.urn, args.resource_type, args.name, Value(args.props))
        for found in rule.examine(Stack((resource,), deployment)):
            report(_text(rule, found.message), None)

    return ResourceValidationPolicy(
        rule.name, rule.about, validate, level, remediation_steps=rule.remedy, url=rule.source
    )


def _on_stack(rule: Rule, level: EnforcementLevel, deployment: Deployment | None) -> Policy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        for found in rule.examine(Stack(_resources(args), deployment)):
            report(_text(rule, found.message), found.urn)

    return StackValidationPolicy(rule.name, rule.about, validate, level, remediation_steps=rule.remedy, url=rule.source)


def _resources(args: StackValidationArgs) -> tuple[Resource, ...]:
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


def _text(rule: Rule, message: str) -> str:
    return f"{message}; {rule.remedy}" if rule.remedy else message
