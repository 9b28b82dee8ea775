"""A mandatory policy, an advisory policy, and a policy for the whole stack."""

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)


def pools_are_small(args: ResourceValidationArgs, report: ReportViolation) -> None:
    if args.resource_type == "azure-native:containerservice:AgentPool" and args.props["count"] > 2:
        report(f"{args.props['count']} nodes > 2", None)


def groups_have_tags(args: ResourceValidationArgs, report: ReportViolation) -> None:
    if args.resource_type == "azure-native:resources:ResourceGroup" and "tags" not in args.props:
        report("no tags", None)


def has_identity(args: StackValidationArgs, report: ReportViolation) -> None:
    for resource in args.resources:
        if resource.resource_type == "azure-native:containerservice:AgentPool":
            assert resource.parent
            if not any(other.resource_type.endswith(":ManagedCluster") for other in resource.dependencies):
                report("a pool without a cluster", resource.urn)


PolicyPack(
    "sample",
    [
        ResourceValidationPolicy("small-pools", "Pools are small.", pools_are_small, EnforcementLevel.MANDATORY),
        ResourceValidationPolicy("tagged", "Groups are tagged.", groups_have_tags, EnforcementLevel.ADVISORY),
        StackValidationPolicy("pool-in-cluster", "Pools are in clusters.", has_identity, EnforcementLevel.MANDATORY),
    ],
)
