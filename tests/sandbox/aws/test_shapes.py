"""Conversion of template properties to API parameters."""

from __future__ import annotations

import botocore.session
import pytest
from botocore.model import Shape

from voice_sandbox.aws.shapes import UnknownPropertyError, conform_to_shape


def shape(service: str, operation: str) -> Shape:
    model = botocore.session.get_session().get_service_model(service)
    found = model.operation_model(operation).input_shape
    assert found is not None
    return found


def test_names_scalars_tags_and_documents_are_converted() -> None:
    given = {"LogGroupName": "g", "Tags": [{"Key": "team", "Value": "voice"}], "DeletionProtectionEnabled": "true"}
    assert conform_to_shape(shape("logs", "CreateLogGroup"), given, "T") == {
        "logGroupName": "g",
        "tags": {"team": "voice"},
        "deletionProtectionEnabled": True,
    }
    given = {"AlarmName": "a", "EvaluationPeriods": "3", "Threshold": "80", "AlarmActions": "arn:x"}
    assert conform_to_shape(shape("cloudwatch", "PutMetricAlarm"), given, "T") == {
        "AlarmName": "a",
        "EvaluationPeriods": 3,
        "Threshold": 80.0,
        "AlarmActions": ["arn:x"],
    }
    assert conform_to_shape(shape("ec2", "ModifyVpcAttribute"), {"EnableDnsSupport": True}, "T") == {
        "EnableDnsSupport": {"Value": True}
    }
    assert conform_to_shape(shape("s3", "PutBucketPolicy"), {"Policy": {"Version": "1"}}, "T") == {
        "Policy": '{"Version": "1"}'
    }


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"AlarmNme": "a"}, "T: unknown property AlarmNme"),
        ({"EvaluationPeriods": "three"}, "T.EvaluationPeriods: 'three' is not of type integer"),
        ({"Dimensions": [{"Nam": "x"}]}, r"T.Dimensions\[0\]: unknown property Nam"),
    ],
)
def test_unsupported_values_are_refused_by_name(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(UnknownPropertyError, match=complaint):
        conform_to_shape(shape("cloudwatch", "PutMetricAlarm"), values, "T")
