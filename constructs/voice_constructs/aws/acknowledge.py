"""Findings of cdk-nag that were read and are meant."""

from aws_cdk import Acknowledgment, Validations
from constructs import Construct


def acknowledge(construct: Construct, rule: str, reason: str) -> None:
    """Record why a cdk-nag finding on a construct is no defect.

    Args:
        construct: What the finding is about.
        rule: The finding's id, with its part in brackets where cdk-nag reports one finding per part.
        reason: Why it is meant, for the report.
    """
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
