"""Every adapter is exercised: the other tests deploy, change and delete these samples."""

from __future__ import annotations

import pytest
from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]

from sandbox.aws.adapters.base import ADAPTERS, Adapter
from tests.sandbox.aws.samples import ALL


def test_every_adapter_is_deployed_by_a_sample() -> None:
    deployed = {body["Type"] for sample in ALL for body in sample().values()}
    assert set(ADAPTERS) - deployed == set()


NOT_REPRESENTED = {
    "AWS::AutoScaling::AutoScalingGroup": {"InstanceId"},
    "AWS::S3::Bucket": {"BucketNamePrefix", "BucketNamespace"},
}


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_a_property_replaces_the_resource_where_cloudformation_says_so(kind: str) -> None:
    adapter = ADAPTERS[kind]
    if adapter.update is Adapter.update or kind in {"AWS::CDK::Metadata", "AWS::CloudFormation::WaitConditionHandle"}:
        return  # replaced at every change, or nothing at all
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema
    paths = [path.split("/")[2:] for path in schema.get("createOnlyProperties", [])]
    fixed = {path[0] for path in paths if len(path) == 1}
    named = set() if adapter.renames else {adapter.name}
    assert fixed - adapter.replaced_by - named <= NOT_REPRESENTED.get(kind, set())
    assert adapter.name in schema["properties"] or not adapter.name
