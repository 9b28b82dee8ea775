"""Environment variables that the programs of the images read, extracted from their sources."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic_settings import BaseSettings

from tests.images.dockerfile import read
from voice_blueprint.images import BUILD_CONTEXT, BuiltImage

NAME = re.compile(r"VOICE_[A-Z0-9_]+")
C_STRING = re.compile(rf'"({NAME.pattern})"')


def variables_for(image: BuiltImage) -> dict[str, bool]:
    """Return the variables that an image's programs read, and whether each is required."""
    found: dict[str, bool] = {}
    for folder in _sources(image):
        found |= dict.fromkeys(_names_in_c(folder), False)
        found |= dict.fromkeys(_read_directly(folder), True)
        read = [each for kind in _settings(folder) for each in fields(kind).items()]
        # Other names are defined by a cloud.
        found |= {name: needed for name, needed in read if NAME.fullmatch(name)}
    return found


def fields(kind: type[BaseSettings]) -> dict[str, bool]:
    """Return the variables of a settings class, and whether each is required."""
    prefix = kind.model_config.get("env_prefix", "")
    return {f"{prefix}{name}".upper(): field.is_required() for name, field in kind.model_fields.items()}


def set_by_image(image: BuiltImage) -> set[str]:
    """Return the variables that the image itself sets."""
    words = [word for item in read(image.folder).all("ENV") for word in item.words]
    return {name for word in words if NAME.fullmatch(name := word.partition("=")[0])}


def _sources(image: BuiltImage) -> Iterator[Path]:
    """Yield the folders of programs that the Dockerfile copies."""
    for item in read(image.folder).all("COPY"):
        if not any(flag.startswith("--from") for flag in item.flags):
            yield from (BUILD_CONTEXT / word for word in item.words[:-1] if re.search(r"(^|/)src$", word))


def _settings(folder: Path) -> Iterator[type[BaseSettings]]:
    """Yield every settings class in a folder of packages. All of their modules are imported."""
    packages = {module.name for module in pkgutil.iter_modules([str(folder)]) if module.ispkg}
    for name in packages:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    waiting = BaseSettings.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.partition(".")[0] in packages:
            yield kind


def _read_directly(folder: Path) -> Iterator[str]:
    """Yield the names that Python reads directly from ``os``."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))):
                    yield from NAME.findall(name)
                case ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(value=str(name)), *_]):
                    yield from NAME.findall(name)


def _names_in_c(folder: Path) -> Iterator[str]:
    for pattern in ("*.c", "*.cpp", "*.h", "*.hpp"):
        for file in folder.rglob(pattern):
            yield from C_STRING.findall(file.read_text(encoding="utf-8"))
