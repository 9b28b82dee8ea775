"""Comparison of quotas with a deployment's requirements, for both clouds."""

from collections.abc import Callable
from dataclasses import dataclass

from voice_ops.preflight.report import CheckResult, CheckStatus, QuotaIncrease

QUOTA_TOPIC_SUFFIX = "quotas and open requests"
"""Topic suffix for quota checks."""


@dataclass(frozen=True)
class PendingRequest:
    """A request for a quota increase that the cloud has not completed.

    Attributes:
        desired: The requested limit, if known.
        reference: Id of the request, and its creation date if known.
    """

    desired: int | None
    reference: str


@dataclass(frozen=True)
class QuotaState:
    """A quota with its usage by others and the deployment's requirements.

    Attributes:
        name: The cloud's name for the quota.
        unit: Unit of the quota, such as vCPU.
        limit: The current limit.
        used_by_others: Usage in the account without this deployment.
        min_need: Required amount at the deployment's minimum size.
        max_need: Required amount at the deployment's maximum size.
    """

    name: str
    unit: str
    limit: int
    used_by_others: int
    min_need: int
    max_need: int


def compare_quota(
    area: str, state: QuotaState, pending: PendingRequest | None, submit: Callable[[int], str]
) -> CheckResult:
    """Compare a quota with the deployment's requirements.

    A limit below the minimum requirement blocks the deploy; a limit below the maximum requirement restricts scaling. A
    quota with a pending request is never requested again.

    Args:
        area: The cloud's name in the report.
        state: The quota.
        pending: A pending request to increase the quota.
        submit: Function that requests a limit.
    """
    desired = state.used_by_others + state.max_need
    fits = desired <= state.limit
    status = CheckStatus.PASSED if fits else CheckStatus.WARNING
    if state.used_by_others + state.min_need > state.limit:
        status = CheckStatus.BLOCKING
    result = f"{state.limit} {state.unit}, {state.used_by_others} in use elsewhere"
    remedy, increase = "", None
    if not fits and pending:
        requested = "an increase" if pending.desired is None else f"{pending.desired} {state.unit}"
        result += f"; {requested} requested ({pending.reference})"
        remedy = "wait for the open request; no other one is filed"
        if pending.desired is not None and pending.desired < desired:
            remedy = f"the open request is too small: request {desired} in its support case"
    elif not fits:
        remedy = f"request {desired} {state.unit} with `voice preflight FILE --request-increases`"
        increase = QuotaIncrease(state.name, state.limit, desired, lambda: submit(desired))
    return CheckResult(
        area,
        f"quota: {state.name}",
        status,
        result,
        f"{state.min_need} at the minimum, {state.max_need} at the maximum",
        remedy,
        increase,
    )
