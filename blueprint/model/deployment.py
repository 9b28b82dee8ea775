"""The whole deployment file."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, PrivateAttr

from blueprint.contract import Image
from blueprint.model.aws import Aws
from blueprint.model.base import ImageDigest, Model, Name
from blueprint.source import SourceMap


class Environment(StrEnum):
    """What a deployment is for; it decides what survives a teardown."""

    SANDBOX = "sandbox"
    """Everything is deleted with its stack."""
    STAGING = "staging"
    """The state store leaves a snapshot; keys and image repositories stay."""
    PRODUCTION = "production"
    """As staging, and logs stay; stacks and load balancers refuse deletion."""


class AcceptedCheck(Model):
    """A check whose finding the operator has read and accepts."""

    id: str
    reason: Annotated[str, Field(min_length=10)]


class Deployment(Model):
    """One environment: everything an operator edits."""

    name: Name
    environment: Environment
    images: dict[Image, ImageDigest] = Field(default_factory=dict, strict=False)
    """Digest of each image in the registry stack's repositories; an image without one is not pulled."""
    accepted_checks: tuple[AcceptedCheck, ...] = ()
    aws: Aws

    _source: SourceMap = PrivateAttr(default_factory=SourceMap)

    @property
    def source(self) -> SourceMap:
        """Where each value stands in the file."""
        return self._source

    def read_from(self, source: SourceMap) -> "Deployment":
        """Remember the file that the values came from, for messages."""
        self._source = source
        return self
