"""Templates: parsing, order of resources, and intrinsic functions."""

from __future__ import annotations

from typing import Any

import pytest

from voice_sandbox.aws.cloudformation.functions import Evaluator
from voice_sandbox.aws.cloudformation.template import (
    TemplateError,
    find_dependencies,
    parse_template,
    sort_by_dependency,
    validate_template,
)


def evaluate(node: object, **template: dict[str, Any]) -> object:
    ids = {"Vpc": "vpc-1", "Queue": "queue-1"}
    evaluator = Evaluator(
        template=template,
        parameters={"Size": "3", "Zones": ["a", "b"], "AWS::Region": "us-east-1"},
        resolve_resource=ids.__getitem__,
        resolve_attribute=lambda name, attribute: f"{name}/{attribute}",
        import_value=lambda name: f"import of {name}",
        list_zones=lambda region: [f"{region}a", f"{region}b"],
    )
    return evaluator.evaluate(node)


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ({"Ref": "Vpc"}, "vpc-1"),
        ({"Ref": "Size"}, "3"),
        ({"Fn::GetAtt": ["Cache", "PrimaryEndPoint.Address"]}, "Cache/PrimaryEndPoint.Address"),
        ({"Fn::GetAtt": "Cache.PrimaryEndPoint.Address"}, "Cache/PrimaryEndPoint.Address"),
        (
            {"Fn::Sub": "${Vpc} ${Cache.PrimaryEndPoint.Port} ${!Literal}"},
            "vpc-1 Cache/PrimaryEndPoint.Port ${Literal}",
        ),
        ({"Fn::Sub": ["${Own}-${Size}", {"Own": {"Ref": "Queue"}}]}, "queue-1-3"),
        ({"Fn::Join": [",", {"Ref": "Zones"}]}, "a,b"),
        ({"Fn::Select": ["1", {"Fn::GetAZs": ""}]}, "us-east-1b"),
        ({"Fn::Select": [0, {"Fn::Split": ["|", "a|b"]}]}, "a"),
        ({"Fn::Select": [1, {"Fn::Cidr": ["10.0.0.0/16", 2, 8]}]}, "10.0.1.0/24"),
        ({"Fn::ImportValue": {"Fn::Sub": "x-${Size}"}}, "import of x-3"),
        ({"Fn::Base64": "hi"}, "aGk="),
        ({"Fn::If": ["IsBig", "big", "small"]}, "big"),
        ({"Fn::FindInMap": ["Sizes", "large", "hosts"]}, 3),
        ([1, {"Ref": "AWS::NoValue"}, {"a": {"Ref": "AWS::NoValue"}, "b": 2}], [1, {"b": 2}]),
        ({"a": {"Fn::If": ["IsSmall", "x", {"Ref": "AWS::NoValue"}]}}, {}),
        (
            {"Condition": {"Bool": {"aws:SecureTransport": "false"}}},
            {"Condition": {"Bool": {"aws:SecureTransport": "false"}}},
        ),
    ],
)
def test_intrinsic_functions_are_evaluated(node: object, value: object) -> None:
    conditions = {
        "IsBig": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Size"}, "1"]}]},
        "IsSmall": {"Fn::And": [{"Fn::Not": [{"Condition": "IsBig"}]}, {"Fn::Equals": [1, "1"]}]},
    }
    assert evaluate(node, Conditions=conditions, Mappings={"Sizes": {"large": {"hosts": 3}}}) == value


def test_unknown_functions_are_refused() -> None:
    with pytest.raises(TemplateError, match="Fn::ForEach"):
        evaluate({"Fn::ForEach": []})


def test_yaml_supports_short_tags_and_does_not_convert_dates() -> None:
    template = parse_template(
        "Resources:\n"
        "  A:\n"
        "    Type: X\n"
        "    Properties:\n"
        "      One: !GetAtt Cache.PrimaryEndPoint.Address\n"
        "      Two: !Sub ['${X}', {X: !Ref B}]\n"
        "      Three: !If [C, !Ref D, !Ref AWS::NoValue]\n"
        "      Version: 2012-10-17\n"
    )
    assert template["Resources"]["A"]["Properties"] == {
        "One": {"Fn::GetAtt": ["Cache", "PrimaryEndPoint.Address"]},
        "Two": {"Fn::Sub": ["${X}", {"X": {"Ref": "B"}}]},
        "Three": {"Fn::If": ["C", {"Ref": "D"}, {"Ref": "AWS::NoValue"}]},
        "Version": "2012-10-17",
    }


@pytest.mark.parametrize("body", ["{", "Resources: {}", "[]", "{'Resources': {'A': {}}, 'Transform': 'X'}"])
def test_templates_that_cannot_be_deployed_are_refused(body: str) -> None:
    with pytest.raises(TemplateError):
        parse_template(body)


def test_resources_are_ordered_after_their_dependencies() -> None:
    resources = {
        "Alarm": {"Type": "T", "Properties": {"Rule": {"Fn::Sub": "${Other.Arn} ${!Last}"}}},
        "Other": {"Type": "T", "DependsOn": "Last", "Properties": {}},
        "Last": {"Type": "T", "Properties": {"Zone": {"Ref": "AWS::Region"}}},
    }
    assert sort_by_dependency(find_dependencies(resources)) == ["Last", "Other", "Alarm"]


def test_circular_dependencies_are_reported() -> None:
    resources = {
        "A": {"Type": "T", "Properties": {"X": {"Ref": "B"}}},
        "B": {"Type": "T", "Properties": {"X": {"Fn::GetAtt": ["A", "Arn"]}}},
    }
    with pytest.raises(TemplateError, match=r"Circular dependency between resources: \[A, B\]"):
        validate_template({"Resources": resources}, {"T"})
