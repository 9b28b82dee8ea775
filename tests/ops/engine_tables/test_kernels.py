"""Attention kernels are extracted from the source, with their supported inputs by GPU."""

import pytest

from tests.ops.engine_tables.conftest import Wheel
from tools.engine_tables.kernels import read_kernels
from tools.engine_tables.names import MissingDefinitionError
from voice_blueprint.engines.published.release import AttentionKernel

PLATFORM = """
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        from .registry import Kernels

    def choose(latent):
        if latent:
            return [Kernels.LATENT]
        return [Kernels.PAGED, *([Kernels.MIXED] if latent else []), Kernels.TYPED]
"""
REGISTRY = """
    from enum import Enum

    class Kernels(Enum):
        PAGED = "p.kernels.Paged"
        TYPED = "p.kernels.Typed"
        MIXED = "p.kernels.Mixed"
        LATENT = "p.kernels.Latent"
        ELSEWHERE = "p.kernels.Elsewhere"
"""
KERNELS = """
    from typing import ClassVar
    from .platform_of import current_platform, runs

    class Base:
        supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "half"]

        @staticmethod
        def get_supported_kernel_block_sizes():
            return [MultipleOf(1)]

        @classmethod
        def is_mla(cls):
            return False

        @classmethod
        def supports_kv_cache_dtype(cls, kind):
            if kind is None:
                return True
            return (not cls.supported_kv_cache_dtypes) or kind in cls.supported_kv_cache_dtypes

    def _on_older():
        return any(current_platform.is_device_capability_family(f) for f in (80, 90))

    class Paged(Base):
        supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "small", "small_newer", "asked", "never", "half"]

        @classmethod
        def get_supported_kernel_block_sizes(cls, spec=None):
            if size := cls._of(spec):
                return [size]
            return [24, MultipleOf(16), 64]

        @classmethod
        def supports_kv_cache_dtype(cls, kind):
            '''Says which.'''
            if kind is not None and kind.startswith("small"):
                if _on_older():
                    return kind == "small"
                return current_platform.is_device_capability_family(100) and runs(kind)
            if kind == "never" and not runs(kind):
                return False
            if kind == "never":
                return False
            if kind in ["asked"]:
                log.debug("asked")
                return False
            return super().supports_kv_cache_dtype(kind)

    class Typed(Base):
        pass

    class Mixed(Base):
        supported_kv_cache_dtypes: ClassVar[list[str]] = []

    class Latent(Base):
        @classmethod
        def is_mla(cls):
            return True

    class Elsewhere(Base):
        pass
"""
FILES = {"p/__init__.py": "", "p/platform.py": PLATFORM, "p/registry.py": REGISTRY, "p/kernels.py": KERNELS}


def test_kv_types_of_kernels_are_read_per_gpu(wheel: Wheel) -> None:
    """Conditions that are only known at run time are assumed to be true."""
    every = (8, 9, 10, 12)
    takes = {"auto": every, "small": (8, 9, 10), "small_newer": (10,), "asked": every, "never": (), "half": every}
    assert read_kernels(wheel(FILES), "p.platform.choose") == (
        AttentionKernel(name="PAGED", blocks=(16, 24), kv_types=takes),
        AttentionKernel(name="TYPED", blocks=(1,), kv_types={"auto": every, "half": every}),
    )


def test_a_moved_selection_function_is_reported(wheel: Wheel) -> None:
    with pytest.raises(MissingDefinitionError, match=r"has no p\.platform\.chosen"):
        read_kernels(wheel(FILES), "p.platform.chosen")
