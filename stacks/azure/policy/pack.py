"""The rules as policies of Pulumi's: thin wrappers that read what Pulumi sends and report what the rules find."""

import functools
from collections.abc import Mapping
from pathlib import Path

import pulumi
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.deserialize import serialize_properties

import blueprint
from blueprint.file.model.deployment import Deployment
from stacks.azure.policy import caches, cloud, exposure, foundations, life, memory, placement, serving, wiring
from stacks.azure.policy.rules import Resource, Rule, Scope, Stack
from stacks.azure.policy.values import Value

RULES: tuple[Rule, ...] = (
    *cloud.RULES,
    *foundations.RULES,
    *placement.RULES,
    *memory.RULES,
    *caches.RULES,
    *serving.RULES,
    *wiring.RULES,
    *exposure.RULES,
    *life.RULES,
)
"""Every rule, in the order of reporting."""

DEPLOYMENT_KEY = ":deployment"
"""How the key of the configuration ends that names the deployment file, in both projects."""


def policies() -> list[Policy]:
    return [_on_resource(rule) if rule.scope is Scope.RESOURCE else _on_stack(rule) for rule in RULES]


def configured_deployment() -> Deployment | None:
    """Load the deployment file that the stack's configuration names; ``None`` where there is no configuration.

    Raises:
        blueprint.DeploymentFileError: The file cannot be read.
    """
    configuration = pulumi.runtime.get_config_env()
    named = [value for key, value in configuration.items() if key.endswith(DEPLOYMENT_KEY)]
    # A relative path starts at the project's folder, which lies beside this one.
    return _loaded((Path(__file__).parent / named[0]).resolve()) if named else None


@functools.cache
def _loaded(file: Path) -> Deployment:
    return blueprint.load(file)


def _on_resource(rule: Rule) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        resource = Resource(args.urn, args.resource_type, args.name, _plain(args.props))
        for found in rule.check(Stack((resource,))):
            report(_text(rule, found.message), None)

    return ResourceValidationPolicy(
        rule.name, rule.about, validate, _level(rule), remediation_steps=rule.remedy, url=rule.source
    )


def _on_stack(rule: Rule) -> Policy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        for found in rule.check(Stack(_resources(args), configured_deployment())):
            report(_text(rule, found.message), found.urn)

    return StackValidationPolicy(
        rule.name, rule.about, validate, _level(rule), remediation_steps=rule.remedy, url=rule.source
    )


def _resources(args: StackValidationArgs) -> tuple[Resource, ...]:
    return tuple(
        Resource(
            resource.urn,
            resource.resource_type,
            resource.name,
            _plain(resource.props),
            {name: tuple(need.urn for need in needs) for name, needs in resource.property_dependencies.items()},
        )
        for resource in args.resources
    )


def _plain(props: Mapping[str, object]) -> Value:
    """Return properties without the proxies that raise where a value is unknown: rules work with what is known."""
    return Value(serialize_properties(props))


def _level(rule: Rule) -> EnforcementLevel:
    return EnforcementLevel.ADVISORY if rule.advice else EnforcementLevel.MANDATORY


def _text(rule: Rule, message: str) -> str:
    return f"{message}; {rule.remedy}"
