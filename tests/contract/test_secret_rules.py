"""The rules on secrets detect violations, each caused by a planted secret."""

from collections.abc import Callable

import pytest

from tests.contract import secret_rules
from tests.contract.templates import Template, properties_by_type

Mutable = dict[str, Template]


RANDOM_TEXT = "k3Jx9QmZ2vT7bLw8Rd5YhN4pAs6Ue1Gf"
PLANTED_SECRETS: dict[str, Callable[[Mutable], None]] = {
    "password": lambda t: properties_by_type(t, "ElastiCache::User")[0]["AuthenticationMode"].update(
        Passwords=["hunter2"]
    ),
    "half a password": lambda t: properties_by_type(t, "ElastiCache::User")[0]["AuthenticationMode"].update(
        Passwords=[{"Fn::Join": ["", ["hunter", {"Ref": "AWS::Region"}]]}]
    ),
    "secret value": lambda t: properties_by_type(t, "SecretsManager::Secret")[0].update(SecretString="hunter2"),
    "plain variable": lambda t: properties_by_type(t, "ECS::TaskDefinition")[0]["ContainerDefinitions"][0][
        "Environment"
    ].append({"Name": "VOICE_TOKEN_KEY", "Value": "hunter2"}),
    "random key in a variable": lambda t: properties_by_type(t, "ECS::TaskDefinition")[0]["ContainerDefinitions"][0][
        "Environment"
    ].append({"Name": "VOICE_X", "Value": RANDOM_TEXT}),
    "random key in an output": lambda t: t["edge"].setdefault("Outputs", {}).update(Key={"Value": RANDOM_TEXT}),
    "access key in user data": lambda t: properties_by_type(t, "EC2::LaunchTemplate")[0]["LaunchTemplateData"][
        "UserData"
    ]["Fn::Base64"]["Fn::Join"][1].append("AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE"),
    "password in user data": lambda t: properties_by_type(t, "EC2::LaunchTemplate")[0]["LaunchTemplateData"][
        "UserData"
    ]["Fn::Base64"]["Fn::Join"][1].append("VOICE_VALKEY_PASSWORD=hunter2"),
    "webhook": lambda t: properties_by_type(t, "SNS::Subscription")[0].update(
        Protocol="https", Endpoint="https://chat.example.com/x"
    ),
}


@pytest.mark.parametrize("secret", PLANTED_SECRETS)
def test_a_secret_in_a_template_is_reported(secret: str, templates: Mutable) -> None:
    PLANTED_SECRETS[secret](templates)
    assert len(secret_rules.violations(templates)) == 1


def test_a_reference_to_a_secret_is_not_reported(templates: Mutable) -> None:
    user = properties_by_type(templates, "ElastiCache::User")[0]
    user["AuthenticationMode"]["Passwords"] = ["{{resolve:secretsmanager:voice/password:SecretString:::}}"]
    assert secret_rules.violations(templates) == []
