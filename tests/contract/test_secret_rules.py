"""The rules on secrets bite: a secret is planted by hand, and a violation must come of it."""

from collections.abc import Callable

import pytest

from tests.contract import secret_rules
from tests.contract.templates import Template, properties_of

Mutable = dict[str, Template]


RANDOM = "k3Jx9QmZ2vT7bLw8Rd5YhN4pAs6Ue1Gf"
PLANTED: dict[str, Callable[[Mutable], None]] = {
    "password": lambda t: properties_of(t, "ElastiCache::User")[0]["AuthenticationMode"].update(Passwords=["hunter2"]),
    "half a password": lambda t: properties_of(t, "ElastiCache::User")[0]["AuthenticationMode"].update(
        Passwords=[{"Fn::Join": ["", ["hunter", {"Ref": "AWS::Region"}]]}]
    ),
    "secret value": lambda t: properties_of(t, "SecretsManager::Secret")[0].update(SecretString="hunter2"),
    "plain variable": lambda t: properties_of(t, "ECS::TaskDefinition")[0]["ContainerDefinitions"][0][
        "Environment"
    ].append({"Name": "VOICE_TOKEN_KEY", "Value": "hunter2"}),
    "random key in a variable": lambda t: properties_of(t, "ECS::TaskDefinition")[0]["ContainerDefinitions"][0][
        "Environment"
    ].append({"Name": "VOICE_X", "Value": RANDOM}),
    "random key in an output": lambda t: t["edge"].setdefault("Outputs", {}).update(Key={"Value": RANDOM}),
    "access key in user data": lambda t: properties_of(t, "EC2::LaunchTemplate")[0]["LaunchTemplateData"]["UserData"][
        "Fn::Base64"
    ]["Fn::Join"][1].append("AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE"),
    "password in user data": lambda t: properties_of(t, "EC2::LaunchTemplate")[0]["LaunchTemplateData"]["UserData"][
        "Fn::Base64"
    ]["Fn::Join"][1].append("VOICE_VALKEY_PASSWORD=hunter2"),
    "webhook": lambda t: properties_of(t, "SNS::Subscription")[0].update(
        Protocol="https", Endpoint="https://chat.example.com/x"
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_secret_in_a_template(planted: str, templates: Mutable) -> None:
    PLANTED[planted](templates)
    assert len(secret_rules.violations(templates)) == 1


def test_reference_to_a_secret_is_none(templates: Mutable) -> None:
    user = properties_of(templates, "ElastiCache::User")[0]
    user["AuthenticationMode"]["Passwords"] = ["{{resolve:secretsmanager:voice/password:SecretString:::}}"]
    assert secret_rules.violations(templates) == []
