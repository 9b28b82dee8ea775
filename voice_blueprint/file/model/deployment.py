"""The whole deployment file."""

import math
from enum import StrEnum
from typing import Annotated, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, PrivateAttr, model_validator

from voice_blueprint import signing
from voice_blueprint.base import Model
from voice_blueprint.contract.images import Image
from voice_blueprint.file.errors import SettingError
from voice_blueprint.file.model.aws import Aws
from voice_blueprint.file.model.azure import Azure
from voice_blueprint.file.model.azure_callers import AzureEdge
from voice_blueprint.file.model.edge import Domain, Edge
from voice_blueprint.file.model.load import CallLoad, Cells
from voice_blueprint.file.model.text import MAX_NAME_LENGTH, ImageDigest, Name
from voice_blueprint.file.source import SourceMap

AZURE_NODES_SUFFIX = "-nodes"
"""Suffix of the resource group that AKS creates for the nodes of a deployment."""
_CELL_DOMAIN_PREFIX_TEMPLATE = "c{}."
"""Prefix of the domain of a cell."""


_Edge = TypeVar("_Edge", Edge, AzureEdge)


def _create_cell_edge(edge: _Edge, number: int) -> _Edge:
    """Return the edge of a cell, with a domain of its own."""
    if edge.domain is None:
        return edge
    domain = edge.domain.model_copy(update={"name": f"{_CELL_DOMAIN_PREFIX_TEMPLATE.format(number)}{edge.domain.name}"})
    return edge.model_copy(update={"domain": domain})


class Environment(StrEnum):
    """Purpose of a deployment, which determines the resources that a teardown retains."""

    SANDBOX = "sandbox"
    """Every resource is deleted with its stack."""
    STAGING = "staging"
    """A teardown takes a final snapshot of the state store, and retains keys and image repositories."""
    PRODUCTION = "production"
    """Like staging, but logs are also retained, and stacks and load balancers are protected against deletion."""


class AcceptedCheck(Model):
    """A check whose finding the operator accepts."""

    id: str
    """Id of the check; ``voice checks`` lists them."""
    reason: Annotated[str, Field(min_length=10)]
    """Reason why the finding is acceptable."""


class ImageSigning(Model):
    """Signature of the images. Hosts start only images with a valid signature."""

    public_key: Annotated[str, AfterValidator(signing.validate_public_key)]
    """Public key of the pipeline (PEM, ECDSA P-256), as printed by ``cosign public-key``."""
    signature: str
    """Signature of `images`, as printed by ``cosign sign-blob``. ``voice images manifest`` prints the text to sign."""


class Deployment(Model):
    """All settings of one environment."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: Name
    """Name of the deployment, and the prefix of its stacks and resources, so that several deployments can share an
    account."""
    environment: Environment
    images: dict[Image, ImageDigest] = Field(default_factory=dict, strict=False)
    """Digest of each image in the deployment's registry. Services whose image has no digest run with 0 replicas."""
    image_signing: ImageSigning | None = None
    """Signature of the images. By default, hosts start images without verification. Production requires a signature."""
    accepted_checks: tuple[AcceptedCheck, ...] = ()
    load: CallLoad | None = None
    """Expected load. If it is omitted, sizes are not compared with the load, and traffic is not priced."""
    cells: Cells | None = None
    """Distribution of the load across cells, which all have the settings in this file. Requires `load`. `voice plan`
    shows the number of cells."""
    aws_section: Aws | None = Field(default=None, alias="aws")
    azure_section: Azure | None = Field(default=None, alias="azure")

    _source: SourceMap = PrivateAttr(default_factory=SourceMap)
    _other_domains: tuple[Domain, ...] = PrivateAttr(default=())
    _shared_domain: Domain | None = PrivateAttr(default=None)
    _is_first_region: bool = PrivateAttr(default=True)
    _name_in_file: str | None = PrivateAttr(default=None)
    _file_regions: tuple[str, ...] = PrivateAttr(default=())
    _whole_deployment: "Deployment | None" = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_sections(self) -> "Deployment":
        if self.aws_section is None and self.azure_section is None:
            raise ValueError("a deployment requires a section `aws`, a section `azure`, or both")
        return self

    @model_validator(mode="after")
    def _check_resource_group(self) -> "Deployment":
        """Refuse the name of a resource group of another deployment, whose removal deletes the group."""
        stem = self.name.removesuffix(AZURE_NODES_SUFFIX)
        if self.azure_section is not None and stem != self.name:
            raise SettingError(
                ("name",),
                f"{self.name} is also the resource group of the nodes of a deployment {stem}; "
                f"use a name that does not end with {AZURE_NODES_SUFFIX}",
            )
        return self

    @model_validator(mode="after")
    def _check_cells(self) -> "Deployment":
        if not self.cells:
            return self
        if not self.load:
            raise SettingError(("cells",), "`cells` requires `load`, the total load of all cells")
        number, cell_numbers = self.cells.number, self._cells_per_region
        if number and number > cell_numbers:
            raise SettingError(
                ("cells", "number"), f"cell {number} does not exist: the load requires {cell_numbers} per region"
            )
        if number and self.aws_section and self.aws_section.edge.domain is None:
            raise SettingError(
                ("cells", "number"), "cells require an `edge.domain`: callers connect to a cell by its name"
            )
        return self

    @model_validator(mode="after")
    def _check_region_names(self) -> "Deployment":
        for name in [regional.name for regional in self.select_cell().split_by_region()]:
            if len(name) > MAX_NAME_LENGTH:
                raise ValueError(
                    f"{name}, the name of a cell or in another region, is longer than {MAX_NAME_LENGTH} characters"
                )
        return self

    def split_by_region(self) -> tuple["Deployment", ...]:
        """Return a deployment for each AWS region. The first one contains the `azure` section too.

        Each has its own name. Templates of the first region do not depend on the other regions. With cells, each region
        contains one cell.
        """
        if self.cells:
            return self.cell.split_by_region()
        if self.aws_section is None or not self.aws_section.other_regions:
            return (self,)
        first = self.model_copy(update={"aws_section": self.aws_section.model_copy(update={"other_regions": ()})})
        others = [self.aws_section.build_region_section(index) for index in range(len(self.aws_section.other_regions))]
        regions = (
            first,
            *(
                first.model_copy(
                    update={"name": f"{self.name}-{aws.region}", "aws_section": aws, "azure_section": None}
                )
                for aws in others
            ),
        )
        for region in regions:
            domains = [other.aws.edge.domain for other in regions if other is not region]
            region._is_first_region = region is regions[0]
            region._name_in_file = self.name
            region._file_regions = tuple(other.aws.region for other in regions)
            region._other_domains = tuple(filter(None, domains))
            if named := self.aws_section.edge.domain:
                region._shared_domain = named.model_copy(update={"name": f"any.{named.name}"})
        return regions

    @property
    def cell_count(self) -> int:
        """Number of cells for the whole load; 1 without `cells`."""
        regions = len(self.file_regions) if self.aws_section else 1
        return self.cells.calculate_cell_count(self.load, regions) if self.cells and self.load else 1

    @property
    def cell(self) -> "Deployment":
        """The deployment as one cell, with the share of the load that it serves while another cell is unavailable."""
        if not self.cells or not self.load:
            return self
        calls = math.ceil(self.load.calls / max(1, self.cell_count - 1))
        cell = self.model_copy(update={"load": self.load.model_copy(update={"calls": calls}), "cells": None})
        cell._whole_deployment = self
        return cell

    @property
    def _cells_per_region(self) -> int:
        """Number of cells in each AWS region of the file. On Azure, a file has one region."""
        return self.cell_count // (len(self.file_regions) if self.aws_section else 1)

    def select_cell(self) -> "Deployment":
        """Return the cell that `cells.number` selects, with its own name and domain, or else this deployment."""
        if not self.cells or not self.cells.number:
            return self
        number = self.cells.number
        update: dict[str, object] = {"name": f"{self.name}-{number}"}
        if aws := self.aws_section:
            update["aws_section"] = aws.model_copy(update={"edge": _create_cell_edge(aws.edge, number)})
        if (azure := self.azure_section) and azure.callers:
            callers = azure.callers.model_copy(update={"edge": _create_cell_edge(azure.callers.edge, number)})
            update["azure_section"] = azure.model_copy(update={"callers": callers})
        return self.model_copy(update=update)

    def list_cell_domains(self, domain: str) -> tuple[str, ...]:
        """Return the domains of all cells; empty without `cells.number`.

        Args:
            domain: Domain of this cell.
        """
        whole = self.whole_deployment or self
        if not whole.cells or not whole.cells.number:
            return ()
        named = domain.partition(_CELL_DOMAIN_PREFIX_TEMPLATE.format(whole.cells.number))[2]
        others = whole.aws_section.other_regions if whole.aws_section else ()
        return tuple(
            f"{region}{_CELL_DOMAIN_PREFIX_TEMPLATE.format(number)}{named}"
            for region in ("", *(f"{each.region}." for each in others))
            for number in range(1, whole._cells_per_region + 1)
        )

    @property
    def whole_deployment(self) -> "Deployment | None":
        """The deployment that this cell belongs to."""
        return self._whole_deployment

    @property
    def other_region_domains(self) -> tuple[Domain, ...]:
        """Domains of the other regions, for a deployment that ``split_by_region`` returned."""
        return self._other_domains

    @property
    def is_first_region(self) -> bool:
        """Whether this region creates the account-wide resources.

        For a deployment that ``split_by_region`` returned.
        """
        return self._is_first_region

    @property
    def name_in_file(self) -> str:
        """Name in the deployment file, without the suffix that names in other regions have."""
        return self._name_in_file or self.name

    @property
    def file_regions(self) -> tuple[str, ...]:
        """AWS regions in the deployment file, the first one first."""
        return self._file_regions or (self.aws.region, *(each.region for each in self.aws.other_regions))

    @property
    def shared_domain(self) -> Domain | None:
        """Domain that resolves to the nearest healthy region, or ``None`` if there is only one region."""
        return self._shared_domain

    @property
    def signing_key(self) -> str | None:
        """The key that signs images, as one line of base64."""
        return signing.extract_pem_body(self.image_signing.public_key) if self.image_signing else None

    @property
    def aws(self) -> Aws:
        """The section `aws`.

        Raises:
            LookupError: The file has no such section; see ``aws_section``.
        """
        if self.aws_section is None:
            raise LookupError(f"deployment {self.name} has no section `aws`")
        return self.aws_section

    @property
    def azure(self) -> Azure:
        """The section `azure`.

        Raises:
            LookupError: The file has no such section; see ``azure_section``.
        """
        if self.azure_section is None:
            raise LookupError(f"deployment {self.name} has no section `azure`")
        return self.azure_section

    @property
    def source(self) -> SourceMap:
        """Locations of the values in the file."""
        return self._source

    def attach_source(self, source: SourceMap) -> "Deployment":
        """Store the locations of the values in the file, for messages."""
        self._source = source
        return self
