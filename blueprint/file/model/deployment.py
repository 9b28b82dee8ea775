"""The whole deployment file."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, PrivateAttr, model_validator

from blueprint import signing
from blueprint.base import Model
from blueprint.contract.images import Image
from blueprint.file.model.aws import Aws
from blueprint.file.model.azure import Azure
from blueprint.file.model.base import NAME_LENGTH, ImageDigest, Name
from blueprint.file.model.edge import Domain
from blueprint.file.model.load import CallLoad
from blueprint.file.source import SourceMap


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
    """Id of the check; ``voice checks`` lists them."""
    reason: Annotated[str, Field(min_length=10)]
    """Why the finding is accepted, for whoever reads the file next."""


class ImageSigning(Model):
    """Who vouches for the images: hosts start what this key has signed, and nothing else."""

    public_key: Annotated[str, AfterValidator(signing.checked_key)]
    """Public half of the pipeline's key, PEM: ECDSA on the curve P-256, as ``cosign public-key`` prints it."""
    signature: str
    """The key's signature of `images`, as ``cosign sign-blob`` prints it; ``voice images manifest`` prints what is
    signed."""


class Deployment(Model):
    """One environment: everything an operator edits."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: Name
    """Name of the deployment. Stacks and resources start with it, so two deployments can share an account."""
    environment: Environment
    images: dict[Image, ImageDigest] = Field(default_factory=dict, strict=False)
    """Digest of each image in the deployment's own registry; an image without one is not pulled."""
    image_signing: ImageSigning | None = None
    """Who signs the images. Without it hosts start whatever the digests name; production is then refused."""
    accepted_checks: tuple[AcceptedCheck, ...] = ()
    load: CallLoad | None = None
    """What callers bring to the AWS half. Without it nothing is compared with it, and traffic has no price."""
    aws_half: Aws | None = Field(default=None, alias="aws")
    azure_half: Azure | None = Field(default=None, alias="azure")

    _source: SourceMap = PrivateAttr(default_factory=SourceMap)
    _elsewhere: tuple[Domain, ...] = PrivateAttr(default=())
    _of_all: Domain | None = PrivateAttr(default=None)
    _is_first: bool = PrivateAttr(default=True)

    @model_validator(mode="after")
    def _deploys_somewhere(self) -> "Deployment":
        if self.aws_half is None and self.azure_half is None:
            raise ValueError("a deployment needs a section `aws`, a section `azure`, or both")
        return self

    @model_validator(mode="after")
    def _names_in_regions(self) -> "Deployment":
        for name in [regional.name for regional in self.in_regions()]:
            if len(name) > NAME_LENGTH:
                raise ValueError(f"{name}, the name in another region, is longer than {NAME_LENGTH} characters")
        return self

    def in_regions(self) -> tuple["Deployment", ...]:
        """Return the AWS half in each of its regions as a deployment of its own, with its own name; the first is whole.

        Templates of the first are the same whether there are others or not.
        """
        if self.aws_half is None or not self.aws_half.other_regions:
            return (self,)
        first = self.model_copy(update={"aws_half": self.aws_half.model_copy(update={"other_regions": ()})})
        others = [self.aws_half.in_other_region(index) for index in range(len(self.aws_half.other_regions))]
        regions = (
            first,
            *(
                first.model_copy(update={"name": f"{self.name}-{aws.region}", "aws_half": aws, "azure_half": None})
                for aws in others
            ),
        )
        for region in regions:
            domains = [other.aws.edge.domain for other in regions if other is not region]
            region._is_first = region is regions[0]
            region._elsewhere = tuple(filter(None, domains))
            if named := self.aws_half.edge.domain:
                region._of_all = named.model_copy(update={"name": f"any.{named.name}"})
        return regions

    @property
    def elsewhere(self) -> tuple[Domain, ...]:
        """Where callers reach the other regions, of one that ``in_regions`` has returned."""
        return self._elsewhere

    @property
    def is_first_region(self) -> bool:
        """Whether what is one for the whole account is made here, of one that ``in_regions`` has returned."""
        return self._is_first

    @property
    def of_all_regions(self) -> Domain | None:
        """Where callers reach whichever region is near and well; ``None`` where there is one region only."""
        return self._of_all

    @property
    def signing_key(self) -> str | None:
        """The key that signs images, as one line of base64."""
        return signing.key_line(self.image_signing.public_key) if self.image_signing else None

    @property
    def aws(self) -> Aws:
        """What is deployed to AWS.

        Raises:
            LookupError: Nothing is; see ``aws_half``.
        """
        if self.aws_half is None:
            raise LookupError(f"deployment {self.name} has no section `aws`")
        return self.aws_half

    @property
    def azure(self) -> Azure:
        """What is deployed to Azure.

        Raises:
            LookupError: Nothing is; see ``azure_half``.
        """
        if self.azure_half is None:
            raise LookupError(f"deployment {self.name} has no section `azure`")
        return self.azure_half

    @property
    def source(self) -> SourceMap:
        """Where each value stands in the file."""
        return self._source

    def read_from(self, source: SourceMap) -> "Deployment":
        """Remember the file that the values came from, for messages."""
        self._source = source
        return self
