"""The engine's tables contain only names of the installed SDKs."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pulumi_azure_native
import pytest

from tests.nonempty import nonempty
from voice_sandbox.azure import arm, fakes, replacements
from voice_sandbox.azure.graph import Resource, make_urn, shorten_type
from voice_sandbox.azure.inputs import find_input_problems
from voice_sandbox.azure.schema import (
    SDK_MODULE_BY_PACKAGE,
    Shape,
    load_args_shape,
    load_definitions,
    load_resource_shape,
    load_type_tokens,
)
from voice_sandbox.azure.sdk_imports import LazyServiceModule
from voice_sandbox.azure.values import UNKNOWN, Secret

KINDS = sorted({*load_definitions(), *arm._ID_TEMPLATE_BY_TYPE})


def shape_for(token: str) -> Shape:
    shape = load_resource_shape(token)
    assert shape, token
    return shape


@pytest.mark.parametrize("kind", KINDS)
def test_ids_consist_of_existing_inputs(kind: str) -> None:
    inputs = shape_for(f"azure-native:{kind}").inputs
    assert set(arm.list_id_inputs(kind)) <= set(inputs)
    assert not inputs[arm.get_name_input(kind)].is_required
    given = {name: f"x{index}" for index, name in enumerate(arm.list_id_inputs(kind))}
    identifier = arm.build_arm_id(kind, given)
    assert identifier
    assert arm.parse_id(kind, identifier) == given
    assert arm.parse_id(kind, "/elsewhere") == {}


@pytest.mark.parametrize(("kind", "output"), list(fakes._OUTPUT_FACTORIES))
def test_simulated_outputs_exist(kind: str, output: str) -> None:
    assert output in shape_for(f"azure-native:{kind}").outputs


@pytest.mark.parametrize("package", ["azure-native", "kubernetes"])
def test_replacing_inputs_exist(package: str) -> None:
    tables: dict[str, Mapping[str, Iterable[str]]] = {
        "azure-native": replacements.AZURE_REPLACEMENT_TRIGGERS,
        "kubernetes": replacements.KUBERNETES_REPLACEMENT_TRIGGERS,
    }
    table = tables[package]
    for kind, paths in nonempty(table.items()):
        shape = shape_for(f"{package}:{kind}")
        for path in paths:
            assert path.split(".")[0] in shape.inputs, f"{kind} {path}"


@pytest.mark.parametrize("package", SDK_MODULE_BY_PACKAGE)
def test_every_type_of_an_sdk_can_be_read(package: str) -> None:
    unread = [token for token in load_type_tokens(package) if load_resource_shape(token) is None]
    assert len(load_type_tokens(package)) > 500
    assert len(unread) <= 3  # azure-native's generator splits two acronyms differently


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("compute:VirtualMachineExtension", "Compute/virtualMachines/{vmName}/extensions/{vmExtensionName}"),
        ("containerregistry:Registry", "ContainerRegistry/registries/{registryName}"),
        ("containerservice:AgentPool", "ContainerService/managedClusters/{resourceName}/agentPools/{agentPoolName}"),
        ("dashboard:Grafana", "Dashboard/grafana/{workspaceName}"),
        ("monitor:ActionGroup", "Insights/actionGroups/{actionGroupName}"),
        ("network:PublicIPAddress", "Network/publicIPAddresses/{publicIpAddressName}"),
        (
            "privatedns:VirtualNetworkLink",
            "Network/privateDnsZones/{privateZoneName}/virtualNetworkLinks/{virtualNetworkLinkName}",
        ),
    ],
)
def test_an_id_has_the_format_of_azure(kind: str, path: str) -> None:
    assert arm.get_id_template(kind).endswith(f"/resourceGroups/{{resourceGroupName}}/providers/Microsoft.{path}")


def test_a_type_that_is_not_deployed_gets_an_id_too() -> None:
    assert arm.get_id_template("network:RouteTable").endswith(
        "/providers/Microsoft.Network/routeTables/{routeTableName}"
    )
    assert arm.get_name_input("monitor:DataCollectionRuleAssociation") == "associationName"
    assert arm.get_id_template("monitor:DataCollectionRuleAssociation").startswith("{resourceUri}/")


def test_nested_types_are_resolved_across_modules() -> None:
    module = shape_for("kubernetes:apps/v1:Deployment").module
    metadata = load_args_shape(module, "_meta.v1.ObjectMetaArgs")
    assert metadata
    assert metadata.inputs["ownerReferences"].is_list
    assert metadata.inputs["labels"].is_map


def test_unknown_and_secret_values_are_not_inspected() -> None:
    token = "kubernetes:core/v1:Pod"
    container = {"name": "x", "resources": Secret({"limits": UNKNOWN}), "env": [UNKNOWN, {"name": "A"}]}
    assert find_input_problems(token, {"spec": {"containers": [container]}, "metadata": UNKNOWN}) == []
    wrong = {"containers": [{"nme": "x"}], "volumes": [{"name": "v", "emptyDir": "yes"}]}
    assert find_input_problems(token, {"spec": wrong}) == [
        "missing required input spec.containers[0].name",
        "unknown input spec.containers[0].nme; did you mean name?",
        "spec.volumes[0].emptyDir must be an object, not 'yes'",
    ]


def test_a_nonexistent_type_of_a_known_group_is_refused() -> None:
    given = {"apiVersion": "apps/v1", "kind": "Deploymint"}
    assert (
        "did you mean kubernetes:apps/v1:Deployment" in find_input_problems("kubernetes:apps/v1:Deploymint", given)[0]
    )
    assert (
        find_input_problems(
            "kubernetes:keda.sh/v1alpha1:ScaledObject", {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
        )
        == []
    )


def test_urns_contain_the_types_of_parents() -> None:
    stack = make_urn("dev", "p", None, "pulumi:pulumi:Stack", "p-dev")
    component = make_urn("dev", "p", stack, "a:b:C", "c")
    child = make_urn("dev", "p", component, "kubernetes:core/v1:Pod", "x")
    assert child == "urn:pulumi:dev::p::a:b:C$kubernetes:core/v1:Pod::x"
    assert Resource(child, "kubernetes:core/v1:Pod", "x").label == 'core/v1:Pod "x"'
    assert shorten_type("pulumi:providers:kubernetes") == "providers:kubernetes"


@pytest.mark.parametrize("name", ["containerregistry", "dashboard", "keyvault"])
def test_a_lazily_loaded_service_equals_the_sdk_module(name: str) -> None:
    whole = getattr(pulumi_azure_native, name)
    service = LazyServiceModule(Path(whole.__file__).parent)
    assert service.outputs is whole.outputs  # which loads all of it
    public = [each for each in dir(whole) if not each.startswith("_") and each != "typing"]
    assert [each for each in public if getattr(service, each) is not getattr(whole, each)] == []
    with pytest.raises(AttributeError, match=f"pulumi_azure_native.{name}' has no attribute 'NoSuchThing'"):
        _ = service.NoSuchThing
