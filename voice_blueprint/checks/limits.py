"""Checks on quotas other than those for vCPUs: targets, tasks, interfaces, requests and nodes."""

from collections.abc import Iterator

from voice_blueprint.catalog import CloudLimit
from voice_blueprint.checks.base import Severity, Violation, deployment_check, format_location
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.limits import LimitUsage, iter_limit_usages


@deployment_check(
    "within-limits",
    "A deployment at its maximum stays within the strict limits that cannot be raised.",
    source="voice_blueprint/catalog/limits.yaml",
)
def check_within_limits(deployment: Deployment) -> Iterator[Violation]:
    yield from (
        _build_limit_violation(use)
        for use in iter_limit_usages(deployment)
        if use.exceeds_limit and _is_fixed(use.limit)
    )


@deployment_check(
    "limits-requested",
    "A deployment at its maximum stays within the default of each limit that can be raised, or that delays requests.",
    source="voice_blueprint/catalog/limits.yaml; `voice preflight` shows the limits of your account",
    level=Severity.WARNING,
)
def check_limits_requested(deployment: Deployment) -> Iterator[Violation]:
    yield from (
        _build_limit_violation(use)
        for use in iter_limit_usages(deployment)
        if use.exceeds_limit and not _is_fixed(use.limit)
    )


def _is_fixed(limit: CloudLimit) -> bool:
    return limit.is_strict and not limit.adjustable


def _build_limit_violation(need: LimitUsage) -> Violation:
    limit = need.limit
    lower = f"lower the maximum of {format_location(need.location)}, or use `cells`"
    request = f"request an increase of {limit.quota} in Service Quotas ({limit.service}) before the deploy, or {lower}"
    return Violation(
        need.location,
        f"{need.units.max:,} {limit.name} at the maximum exceed the {'default' if limit.adjustable else 'limit'} of "
        f"{limit.default:,}",
        request if limit.quota else lower,
    )
