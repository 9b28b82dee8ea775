"""Types without an adapter of their own, through moto's CloudFormation models.

moto reads only part of the properties of these types and drops the rest in silence, which is why the types that this
project deploys have adapters instead. Custom resources need a Lambda runtime and nested stacks a second deployment;
both are refused.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from moto.cloudformation.parsing import get_model_map
from moto.core.common_models import CloudFormationModel

from sandbox.aws.adapters.base import Adapter, Properties
from sandbox.aws.shapes import Json

_REFUSED = frozenset({"AWS::CloudFormation::Stack", "AWS::CloudFormation::CustomResource", "?"})


class MotoModel(Adapter):
    """A resource that moto's own model makes; its type comes from `moto_adapter`."""

    service = ""
    kind: str
    model: type[CloudFormationModel]

    def create(self, properties: Properties) -> str:
        """Let the model create the resource."""
        self._made: Any = self.model.create_from_cloudformation_json(
            properties.get(self.name) or self.generate_name(self.scope),
            self._body(properties),
            self.scope.account,
            self.scope.region,
            LogicalId=self.scope.logical_id,
            StackId=self.scope.stack_id,
            ResourceType=self.kind,
        )
        return str(self._made.physical_resource_id)

    def delete(self) -> None:
        """Let the model delete the resource."""
        place = self.scope.account, self.scope.region
        if hasattr(self._made, "delete"):
            self._made.delete(*place)
        else:
            self.model.delete_from_cloudformation_json(self.id, self._body(self.properties), *place)

    def attributes(self) -> _ModelAttributes:
        """Read attributes from the model as they are asked for."""
        return _ModelAttributes(self._made)

    def _body(self, properties: Properties) -> dict[str, Any]:
        return {"Type": self.kind, "Properties": properties}


class _ModelAttributes(dict[str, Any]):
    """Attributes of a moto model, read one by one because a model cannot list them."""

    def __init__(self, model: Json) -> None:
        super().__init__()
        self._model = model

    def __missing__(self, name: str) -> Json:
        try:
            return self._model.get_cfn_attribute(name)
        except Exception as error:
            raise KeyError(name) from error


@cache
def moto_adapter(kind: str) -> type[MotoModel] | None:
    """Return an adapter over moto's model of a type, or None if moto has none."""
    model = get_model_map().get(kind)
    if model is None or kind in _REFUSED:
        return None
    return type(
        "MotoModel", (MotoModel,), {"kind": kind, "model": model, "name": model.cloudformation_name_type() or ""}
    )
