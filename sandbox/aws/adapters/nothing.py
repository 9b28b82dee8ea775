"""Types that CloudFormation deploys without making anything."""

from __future__ import annotations

from sandbox.aws.adapters.base import Adapter, Properties


class _Nothing(Adapter):
    """A resource that exists in the stack alone."""

    def create(self, properties: Properties) -> str:  # noqa: ARG002
        """Make up an id."""
        return self.generate_name(self.scope)

    def update(self, new: Properties) -> None:
        """Change nothing."""

    def delete(self) -> None:
        """Delete nothing."""


class Metadata(_Nothing):
    """The CDK's usage statistics."""

    resource_type = "AWS::CDK::Metadata"


class WaitConditionHandle(_Nothing):
    """A handle without a wait condition; a stack may carry one so as not to be empty."""

    resource_type = "AWS::CloudFormation::WaitConditionHandle"
