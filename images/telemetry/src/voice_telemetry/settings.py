"""Settings that the launcher sets. An invalid value ends the program before it publishes anything."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from voice_blueprint.contract.metrics import CONTROL_SOCKET, ENGINE_METRICS_PATH, NEURON_TOOLS_DIR, START_PHASES_FILE
from voice_blueprint.contract.network import ENGINE_HEALTH
from voice_telemetry.prometheus import LOOPBACK


class SourceName(StrEnum):
    """Source of values."""

    DATAPLANE = "dataplane"
    NIC = "nic"
    NEURON = "neuron"
    GPU = "gpu"
    ENGINE = "engine"


def _split_list(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Settings(BaseSettings):
    """The contract's variables, and further variables that only this program reads."""

    model_config = SettingsConfigDict(env_prefix="VOICE_", frozen=True)

    deployment: str = Field(min_length=1)
    fleet: str = Field(min_length=1)
    host: str = Field(min_length=1)
    region: str = ""
    """CloudWatch region. If it is empty, values are only exported to Prometheus."""
    telemetry_sources: Annotated[tuple[SourceName, ...], NoDecode, BeforeValidator(_split_list)] = Field(min_length=1)
    prometheus_port: int = Field(ge=1, le=65535)
    prometheus_address: str = LOOPBACK
    control_socket: Path = Path(CONTROL_SOCKET)
    engine_metrics_url: str = f"http://127.0.0.1:{ENGINE_HEALTH.number}{ENGINE_METRICS_PATH}"
    neuron_monitor: Path = Path(NEURON_TOOLS_DIR) / "bin/neuron-monitor"
    start_phases: Path = Path(START_PHASES_FILE)
    read_every_s: float = Field(default=1.0, gt=0, le=60)
    publish_every_s: float = Field(default=5.0, gt=0, le=60)
    """Publishing interval. Alarms are evaluated every 10 s, so values may be late by half of that time."""
