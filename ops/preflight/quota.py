"""Comparing a quota with what a deployment needs: the arithmetic that both clouds share."""

from collections.abc import Callable
from dataclasses import dataclass

from ops.preflight.report import Increase, Row, Status

QUOTAS = "quotas and open requests"
"""How the questions about quotas end."""


@dataclass(frozen=True)
class Pending:
    """A request for an increase that the cloud has not decided.

    Attributes:
        desired: The limit that it asks for; absent where the cloud does not say.
        reference: Its id, and when it was made if that is known.
    """

    desired: int | None
    reference: str


@dataclass(frozen=True)
class QuotaState:
    """One quota, what others use of it and what the deployment needs.

    Attributes:
        name: The quota as its cloud names it.
        unit: What it counts, such as vCPU.
        limit: The limit now.
        others: What runs in the account and is not this deployment's.
        low: Need at the deployment's minimum.
        high: Need at its maximum.
    """

    name: str
    unit: str
    limit: int
    others: int
    low: int
    high: int


def quota_row(area: str, state: QuotaState, pending: Pending | None, file: Callable[[int], str]) -> Row:
    """Compare a quota with the need.

    Less than the minimum needs blocks; less than the maximum needs is a ceiling that scaling will hit. A quota with an
    open request is never asked for again.

    Args:
        area: The cloud, as the report names it.
        state: The quota.
        pending: An open request for it.
        file: Requests a limit.
    """
    desired = state.others + state.high
    fits = desired <= state.limit
    status = Status.FINE if fits else Status.WARNING
    if state.others + state.low > state.limit:
        status = Status.BLOCKS
    found = f"{state.limit} {state.unit}, {state.others} used by others"
    remedy, increase = "", None
    if not fits and pending:
        asked_for = "an increase" if pending.desired is None else f"{pending.desired} {state.unit}"
        found += f"; {asked_for} requested ({pending.reference})"
        remedy = "wait for the open request; nothing is filed beside it"
        if pending.desired is not None and pending.desired < desired:
            remedy = f"the open request is too small: ask in its case for {desired}"
    elif not fits:
        remedy = f"request {desired} {state.unit}: `voice preflight FILE --request-increases` files it"
        increase = Increase(state.name, state.limit, desired, lambda: file(desired))
    return Row(
        area,
        f"quota: {state.name}",
        status,
        found,
        f"{state.low} at the minimum, {state.high} at the maximum",
        remedy,
        increase,
    )
