"""Findings of cdk-nag that were read and are meant."""

from aws_cdk import Acknowledgment
from constructs import Construct

_MEANT: list[tuple[Construct, Acknowledgment]] = []


def acknowledge(construct: Construct, rule: str, reason: str) -> None:
    """Record why a cdk-nag finding on a construct is no defect.

    Args:
        construct: What the finding is about.
        rule: The finding's id, with its part in brackets where cdk-nag reports one finding per part.
        reason: Why it is meant, for the report.
    """
    _MEANT.append((construct, Acknowledgment(id=rule, reason=reason)))


def acknowledged() -> list[tuple[Construct, Acknowledgment]]:
    """Return what was recorded since the last call.

    Only a synth that validates tells CDK: it takes two calls into its process for each, a twelfth of a synth's calls.
    """
    recorded = _MEANT.copy()
    _MEANT.clear()
    return recorded
