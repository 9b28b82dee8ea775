"""What each container image is: ``images/<name>/image.yaml``, typed and checked against catalogue and contract.

It stands here and not in ``images/`` because launchers, manifests and sizing read it: size budgets, users, ports and
cache folders are part of what is deployed. The programs in ``images/`` never need it.
"""

import functools
import json
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from blueprint import catalog
from blueprint.azure import contract as cluster_contract
from blueprint.base import Model
from blueprint.contract import network
from blueprint.contract.images import UNPRIVILEGED_USER, Image
from blueprint.contract.network import Port

CONTEXT = Path(__file__).parents[1]
"""What every image is built from: the repository, as far as ``.dockerignore`` lets it in."""

FOLDER = CONTEXT / "images"
FILE = "image.yaml"

Platform = Literal["linux/amd64", "linux/arm64"]
_CONTRACTS = {"contract": network, "cluster_contract": cluster_contract}


def port(name: str) -> Port:
    """Return a port by the name of its constant, such as ``cluster_contract.ENGINE_HTTP``.

    Raises:
        ValueError: There is no such port.
    """
    module, _, constant = name.partition(".")
    found = getattr(_CONTRACTS.get(module), constant, None)
    if not isinstance(found, Port):
        raise ValueError(  # noqa: TRY004  pydantic reports a ValueError with its place
            f"{name} is no port of blueprint.contract.network or blueprint.azure.contract"
        )
    return found


class Base(Model):
    """A distribution's image that several of our images start from."""

    name: str
    upstream_image: str
    """Repository and tag; builds take it by digest."""
    bootstrap: str
    """Debian suite that the same root file system can be made from where no registry is reachable."""
    source: str


@functools.cache
def bases() -> dict[str, Base]:
    """Distribution images by name; accelerator images stand in the catalogue of engines."""
    items = yaml.load((FOLDER / "bases.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {base.name: base for base in (Base.model_validate_json(json.dumps(item)) for item in items)}


def upstream(name: str) -> str:
    """Return the upstream image, with its tag, of an engine or a distribution base.

    Raises:
        ValueError: Neither has that name, or the engine has no public image.
    """
    engine = catalog.engines().get(name)
    reference = engine.upstream_image if engine else None
    if name in bases():
        reference = bases()[name].upstream_image
    if reference is None:
        raise ValueError(f"{name} is no engine with an upstream image, and no base in images/bases.yaml")
    return reference


def _is_engine(name: str) -> str:
    if name not in catalog.engines():
        raise ValueError(f"{name} is no engine in the catalogue")
    return name


def _is_port(name: str) -> str:
    port(name)
    return name


def _has_upstream(name: str) -> str:
    upstream(name)
    return name


Argument = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
"""Name of a build argument."""
EngineName = Annotated[str, AfterValidator(_is_engine)]
PortName = Annotated[str, AfterValidator(_is_port)]
UpstreamName = Annotated[str, AfterValidator(_has_upstream)]
Folder = Annotated[str, Field(pattern=r"^/[a-z0-9/_-]+$")]


class HttpHealth(Model):
    """Healthy while a path answers 200."""

    port: PortName
    path: Annotated[str, Field(pattern=r"^/")]


class TcpHealth(Model):
    """Healthy while a port accepts connections."""

    port: PortName


class CommandHealth(Model):
    """Healthy while a program of the image exits 0."""

    command: tuple[str, ...] = Field(min_length=1)


class NoHealth(Model):
    """Nothing to ask; whoever watches its process knows all there is."""

    none_because: Annotated[str, Field(min_length=10)]


class Size(Model):
    """What the image may take on a node."""

    budget_gib: float = Field(gt=0)
    """Upper bound of the unpacked image, GiB."""
    source: str


class Package(Model):
    """A distribution's package at one version."""

    name: str
    version: Annotated[str, Field(pattern=r"^[0-9][^\s*]*$")]
    source: str


class _Spec(Model):
    """What built and mirrored images share."""

    name: Image
    summary: str
    clouds: tuple[Literal["aws", "azure"], ...] = Field(min_length=1)
    run_by: str
    """Fleets and services that run it, in words."""
    platforms: tuple[Platform, ...] = Field(min_length=1)
    size: Size
    ports: tuple[PortName, ...] = ()
    """Every port that some launcher makes it listen on, by the name of its constant."""
    health: HttpHealth | TcpHealth | CommandHealth | NoHealth
    user_id: int = Field(default=UNPRIVILEGED_USER, ge=0)
    root_because: str | None = None
    capabilities: tuple[Annotated[str, Field(pattern=r"^[A-Z_]+$")], ...] = ()
    """Linux capabilities that its container is given, without ``CAP_``; it keeps no other."""
    cache_dir: Folder | None = None
    """Where a volume that survives the container must be mounted: compile caches and weights."""
    labels: dict[str, str] = Field(default_factory=dict)
    """OCI annotations beside those that every image gets from its specification and build."""

    @model_validator(mode="after")
    def _root_is_explained(self) -> "_Spec":
        if (self.user_id == 0) != (self.root_because is not None):
            raise ValueError("user_id 0 needs root_because, and nothing else may have it")
        return self

    @property
    def port_numbers(self) -> tuple[Port, ...]:
        return tuple(port(name) for name in self.ports)


class BuiltImage(_Spec):
    """An image with a Dockerfile of ours."""

    kind: Literal["built"]
    bases: dict[Argument, UpstreamName] = Field(min_length=1)
    """Build arguments that take a base image by digest, and what they are the digest of."""
    versions: dict[Argument, EngineName] = Field(default_factory=dict)
    """Build arguments that take an engine's version from the catalogue."""
    packages: dict[Argument, Package] = Field(default_factory=dict)
    """Build arguments that take the version of a distribution's package."""

    @property
    def folder(self) -> Path:
        """Where its Dockerfile stands."""
        return FOLDER / self.name

    @property
    def build_args(self) -> dict[str, str]:
        """Every build argument but the bases."""
        engines = catalog.engines()
        return {argument: engines[name].version for argument, name in self.versions.items()} | {
            argument: package.version for argument, package in self.packages.items()
        }

    @property
    def buildable_offline(self) -> bool:
        """Whether every base can be bootstrapped from a distribution's packages."""
        return all(name in bases() for name in self.bases.values())

    @model_validator(mode="after")
    def _arguments_differ(self) -> "BuiltImage":
        if len({*self.bases, *self.versions, *self.packages}) < len([*self.bases, *self.versions, *self.packages]):
            raise ValueError("one build argument is given two meanings")
        return self


class MirroredImage(_Spec):
    """A publisher's image, copied unchanged into the own registry."""

    kind: Literal["mirrored"]
    upstream: Annotated[EngineName, AfterValidator(_has_upstream)]


ImageSpec = BuiltImage | MirroredImage
_ADAPTER: TypeAdapter[ImageSpec] = TypeAdapter(Annotated[ImageSpec, Field(discriminator="kind")])


def load(file: Path) -> ImageSpec:
    """Read one ``image.yaml``.

    Raises:
        pydantic.ValidationError: It does not fit the type, or names what the contract or catalogue lacks.
        ValueError: It describes another image than its folder is named after.
    """
    document = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    spec = _ADAPTER.validate_json(json.dumps(document))
    if spec.name != file.parent.name:
        raise ValueError(f"{file} describes {spec.name}")
    return spec


@functools.cache
def specs() -> dict[Image, ImageSpec]:
    """Every image that has an ``image.yaml``, in the contract's order."""
    files = {image: FOLDER / image / FILE for image in Image}
    return {image: load(file) for image, file in files.items() if file.exists()}
