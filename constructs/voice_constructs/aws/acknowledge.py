"""Reviewed and accepted findings from cdk-nag."""

from aws_cdk import Acknowledgment
from constructs import IConstruct

_RECORDED_ACKNOWLEDGMENTS: list[tuple[IConstruct, Acknowledgment]] = []


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Record why a cdk-nag finding on a construct is acceptable.

    Args:
        construct: Construct of the finding.
        rule: Id of the finding, with its part in brackets if cdk-nag reports one finding per part.
        reason: Reason, for the report.
    """
    _RECORDED_ACKNOWLEDGMENTS.append((construct, Acknowledgment(id=rule, reason=reason)))


def pop_acknowledgments() -> list[tuple[IConstruct, Acknowledgment]]:
    """Return and clear the acknowledgements that have been recorded.

    Only a validating synth passes them to the CDK. Each acknowledgement requires two calls into jsii's process.
    Together, these calls make up a twelfth of all calls of a synth.
    """
    recorded = _RECORDED_ACKNOWLEDGMENTS.copy()
    _RECORDED_ACKNOWLEDGMENTS.clear()
    return recorded
