"""What an EC2 host runs at first boot: step files of strict shell, rendered from typed values."""

from userdata.render import HOST_ACTIONS, SIZE_LIMIT_BYTES, render, render_bake, render_preparation
from userdata.values import (
    SET_ON_THE_HOST,
    AfXdp,
    Artifacts,
    Bake,
    Container,
    HealthCommand,
    HealthPort,
    HostBoot,
    HugePages,
    LifecycleHooks,
    Mount,
    Preparation,
    StateAccess,
    Vfio,
)

__all__ = [
    "HOST_ACTIONS",
    "SET_ON_THE_HOST",
    "SIZE_LIMIT_BYTES",
    "AfXdp",
    "Artifacts",
    "Bake",
    "Container",
    "HealthCommand",
    "HealthPort",
    "HostBoot",
    "HugePages",
    "LifecycleHooks",
    "Mount",
    "Preparation",
    "StateAccess",
    "Vfio",
    "render",
    "render_bake",
    "render_preparation",
]
