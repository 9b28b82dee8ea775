"""Container images: ``images/<name>/image.yaml``, typed and checked against catalogue and contract.

The module is not in ``images/`` because launchers, manifests and sizing read it: size budgets, users, ports and cache
directories are part of a deployment. The programs in ``images/`` do not use this module.
"""

import functools
import json
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from voice_blueprint import catalog
from voice_blueprint.azure import contract as cluster_contract
from voice_blueprint.base import Model
from voice_blueprint.contract import network
from voice_blueprint.contract.images import UNPRIVILEGED_UID, Image
from voice_blueprint.contract.network import Port
from voice_blueprint.shipped import ROOT

BUILD_CONTEXT = ROOT
"""Build context of every image: the repository, or the part of it that the wheel contains, as limited by
``.dockerignore``."""

IMAGES_FOLDER = BUILD_CONTEXT / "images"
SPEC_FILE = "image.yaml"
SNAPSHOT_ARGUMENT = "DEBIAN_SNAPSHOT"
"""Build argument for Debian-based images (``images/debian.sh``)."""

Platform = Literal["linux/amd64", "linux/arm64"]
_CONTRACT_MODULES = {"contract": network, "cluster_contract": cluster_contract}


def find_port(name: str) -> Port:
    """Return a port by the name of its constant, such as ``cluster_contract.ENGINE_HTTP``.

    Raises:
        ValueError: No constant has this name.
    """
    module, _, constant = name.partition(".")
    result = getattr(_CONTRACT_MODULES.get(module), constant, None)
    if not isinstance(result, Port):
        raise ValueError(  # noqa: TRY004  pydantic reports the location of a ValueError
            f"{name} is no port of blueprint.contract.network or blueprint.azure.contract"
        )
    return result


class BaseImage(Model):
    """A distribution's image that several of our images are based on."""

    name: str
    upstream_image: str
    """Repository and tag; builds use its digest."""
    bootstrap: str
    """Debian suite from which the same root file system can be created without access to a registry."""
    snapshot: Annotated[str, Field(pattern=r"^[0-9]{8}T[0-9]{6}Z$")]
    """Timestamp of the snapshot at https://snapshot.debian.org that contains every pinned package version."""
    source: str


@functools.cache
def load_base_images() -> dict[str, BaseImage]:
    """Return the base images of distributions by name. Accelerator images are in the catalogue of engines."""
    items = yaml.load((IMAGES_FOLDER / "bases.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {base.name: base for base in (BaseImage.model_validate_json(json.dumps(item)) for item in items)}


def find_upstream_reference(name: str) -> str:
    """Return the tagged reference to the upstream image for an engine or a distribution's base.

    Raises:
        ValueError: Neither has this name, or the engine has no public image.
    """
    engine = catalog.engines().get(name)
    reference = engine.upstream_image if engine else None
    if name in load_base_images():
        reference = load_base_images()[name].upstream_image
    if reference is None:
        raise ValueError(f"{name} is no engine with an upstream image, and no base in images/bases.yaml")
    return reference


def _check_engine_name(name: str) -> str:
    if name not in catalog.engines():
        raise ValueError(f"{name} is no engine in the catalogue")
    return name


def _check_port_name(name: str) -> str:
    find_port(name)
    return name


def _check_upstream_name(name: str) -> str:
    find_upstream_reference(name)
    return name


BuildArgumentName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
"""Name of a build argument."""
EngineName = Annotated[str, AfterValidator(_check_engine_name)]
PortName = Annotated[str, AfterValidator(_check_port_name)]
UpstreamName = Annotated[str, AfterValidator(_check_upstream_name)]
AbsoluteFolderPath = Annotated[str, Field(pattern=r"^/[a-z0-9/_-]+$")]


class HttpHealthCheck(Model):
    """Healthy while a path returns 200."""

    port: PortName
    path: Annotated[str, Field(pattern=r"^/")]


class TcpHealthCheck(Model):
    """Healthy while a port accepts connections."""

    port: PortName


class CommandHealthCheck(Model):
    """Healthy while a program of the image exits with status 0."""

    command: tuple[str, ...] = Field(min_length=1)


class NoHealthCheck(Model):
    """No health check: the state of the process is sufficient."""

    none_because: Annotated[str, Field(min_length=10)]


class ImageSize(Model):
    """Resources that the image uses on a node."""

    budget_gib: float = Field(gt=0)
    """Upper bound on the size of the unpacked image, GiB."""
    source: str


class Package(Model):
    """A distribution's package at one version."""

    name: str
    version: Annotated[str, Field(pattern=r"^[0-9][^\s*]*$")]
    source: str


class _CommonImageSpec(Model):
    """Base of built and mirrored images."""

    name: Image
    summary: str
    clouds: tuple[Literal["aws", "azure"], ...] = Field(min_length=1)
    run_by: str
    """Fleets and services that run it, as text."""
    platforms: tuple[Platform, ...] = Field(min_length=1)
    size: ImageSize
    ports: tuple[PortName, ...] = ()
    """All ports that a launcher may configure, by the names of their constants."""
    health: HttpHealthCheck | TcpHealthCheck | CommandHealthCheck | NoHealthCheck
    user_id: int = Field(default=UNPRIVILEGED_UID, ge=0)
    root_because: str | None = None
    capabilities: tuple[Annotated[str, Field(pattern=r"^[A-Z_]+$")], ...] = ()
    """Linux capabilities of its container, without ``CAP_``; all others are dropped."""
    cache_dir: AbsoluteFolderPath | None = None
    """Mount path of a persistent volume for compile caches and weights."""
    labels: dict[str, str] = Field(default_factory=dict)
    """OCI annotations in addition to those that every image gets from its specification and build."""

    @model_validator(mode="after")
    def _check_root_reason(self) -> "_CommonImageSpec":
        if (self.user_id == 0) != (self.root_because is not None):
            raise ValueError("user_id 0 needs root_because, and nothing else may have it")
        return self

    @property
    def resolved_ports(self) -> tuple[Port, ...]:
        return tuple(find_port(name) for name in self.ports)


class BuiltImage(_CommonImageSpec):
    """An image with a Dockerfile in this repository."""

    kind: Literal["built"]
    bases: dict[BuildArgumentName, UpstreamName] = Field(min_length=1)
    """Build arguments for the digests of base images, and the base that each belongs to."""
    versions: dict[BuildArgumentName, EngineName] = Field(default_factory=dict)
    """Build arguments for engine versions from the catalogue."""
    packages: dict[BuildArgumentName, Package] = Field(default_factory=dict)
    """Build arguments for versions of a distribution's packages."""

    @property
    def folder(self) -> Path:
        """Path of the folder with its Dockerfile."""
        return IMAGES_FOLDER / self.name

    @property
    def build_args(self) -> dict[str, str]:
        """All build arguments except the bases."""
        engines = catalog.engines()
        arguments = {argument: engines[name].version for argument, name in self.versions.items()}
        arguments |= {argument: package.version for argument, package in self.packages.items()}
        for name in self.bases.values():
            # An image based on a publisher's image installs packages from a release pocket, which keeps its versions.
            if name in load_base_images():
                arguments[SNAPSHOT_ARGUMENT] = load_base_images()[name].snapshot
        return arguments

    @property
    def is_buildable_offline(self) -> bool:
        """Whether every base can be bootstrapped from a distribution's packages."""
        return all(name in load_base_images() for name in self.bases.values())

    @model_validator(mode="after")
    def _check_unique_arguments(self) -> "BuiltImage":
        if len({*self.bases, *self.versions, *self.packages}) < len([*self.bases, *self.versions, *self.packages]):
            raise ValueError("one build argument is given two meanings")
        return self


class MirroredImage(_CommonImageSpec):
    """A publisher's image, copied unchanged to the operator's registry."""

    kind: Literal["mirrored"]
    upstream: Annotated[EngineName, AfterValidator(_check_upstream_name)]


ImageSpec = BuiltImage | MirroredImage
_IMAGE_SPEC_ADAPTER: TypeAdapter[ImageSpec] = TypeAdapter(Annotated[ImageSpec, Field(discriminator="kind")])


def load_image_spec(file: Path) -> ImageSpec:
    """Load an ``image.yaml``.

    Raises:
        pydantic.ValidationError: The file does not match the type, or refers to names that the contract or catalogue
            does not define.
        ValueError: The file describes an image other than that of its folder.
    """
    document = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    spec = _IMAGE_SPEC_ADAPTER.validate_json(json.dumps(document))
    if spec.name != file.parent.name:
        raise ValueError(f"{file} describes {spec.name}")
    return spec


@functools.cache
def load_image_specs() -> dict[Image, ImageSpec]:
    """Return the specification of every image with an ``image.yaml``, in the order of the contract."""
    files = {image: IMAGES_FOLDER / image / SPEC_FILE for image in Image}
    return {image: load_image_spec(file) for image, file in files.items() if file.exists()}
