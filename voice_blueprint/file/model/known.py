"""Types for names of the catalogue."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from voice_blueprint import catalog
from voice_blueprint.contract.metrics import METRICS
from voice_blueprint.contract.network import Tier


@dataclass(frozen=True)
class CatalogName:
    """Annotation for strings that must be names in the catalogue. Other names are rejected when a file is loaded.

    The model itself accepts any name, so that constructs in another app can use types that the catalogue does not
    contain.

    Attributes:
        kind: Description of the names and their file, or ``None`` if a check validates them.
        names: Function that returns the names.
    """

    kind: str | None
    names: Callable[[], Iterable[str]]

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(core_schema) | {"enum": sorted(self.names())}


def _list_azure_regions() -> set[str]:
    return {region for size in catalog.vm_sizes().values() for region in size.regions}


def _list_scaling_metrics() -> list[str]:
    return [each.name for each in METRICS.values() if each.is_fleet_wide and {Tier.VAD, Tier.ASR} & set(each.tiers)]


AwsRegion = Annotated[str, CatalogName("AWS region in voice_blueprint/catalog/regions.yaml", catalog.regions)]
InstanceTypeName = Annotated[
    str, CatalogName("EC2 instance type in voice_blueprint/catalog/instance_types.yaml", catalog.instance_types)
]
NodeTypeName = Annotated[
    str, CatalogName("ElastiCache node type in voice_blueprint/catalog/cache_node_types.yaml", catalog.cache_node_types)
]
AzureRegion = Annotated[str, CatalogName("Azure region in voice_blueprint/catalog/vm_sizes.yaml", _list_azure_regions)]
VmSizeName = Annotated[str, CatalogName("Azure VM size in voice_blueprint/catalog/vm_sizes.yaml", catalog.vm_sizes)]
ModelName = Annotated[str, CatalogName("model in voice_blueprint/catalog/models.yaml", catalog.models)]
MetricName = Annotated[str, CatalogName(None, _list_scaling_metrics)]
