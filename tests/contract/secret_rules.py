"""No template holds a secret: passwords are references, and nothing looks like a key."""

import re
from collections.abc import Iterator
from itertools import pairwise

from blueprint.contract.environment import TOKEN_KEY, VALKEY_PASSWORD
from tests.contract.templates import Templates, of_type, text

SECRET_PROPERTY = re.compile(r"password|passwd|secret|credential|api_?key|private_?key|auth_?token", re.IGNORECASE)
ABOUT_SECRETS = {
    "GenerateSecretString", "SecretStringTemplate", "GenerateStringKey", "PasswordLength", "ExcludePunctuation",
    "Secrets", "ApiKeyRequired", "ApiKeySourceType", "SecretId",
}  # fmt: skip
"""Properties that say how a secret is made, found or asked for."""

INJECTED = {TOKEN_KEY.name, VALKEY_PASSWORD.name}
"""Variables that a launcher takes from Secrets Manager when it starts the container."""

DYNAMIC_REFERENCE = re.compile(r"\{\{resolve:(secretsmanager|ssm-secure):[^}]+\}\}")
ONLY_AT_DEPLOY = re.compile(r"<[^<>]*>")
PUBLIC_KEY = re.compile(r"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE[A-Za-z0-9+/]{86}==")
"""A public key of the curve P-256, which begins by saying that it is one."""
KNOWN_SHAPES = {
    "an AWS access key": re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "a chat webhook": re.compile(r"https://hooks\.\S+|https://[\w.-]*webhook\S+"),
    "a token": re.compile(r"\b(xox[abprs]-|gh[pousr]_|eyJ[\w-]{10,}\.)"),
}

WORD = re.compile(r"[A-Za-z0-9+]{20,}")
CDK_HASH = re.compile(r"[0-9A-F]{8}$")
"""CDK ends the names that it makes in a hash of their path."""
CHANGES = 0.45
"""Neighbours in random letters and digits differ in kind (lower, upper, digit) 62 times in 100; in names and in
digests, which have no upper-case letters, far less often."""


def violations(templates: Templates) -> list[str]:
    """Return literals where a reference belongs, and text that looks like a secret."""
    found: list[str] = []
    for tier, template in templates.items():
        for logical_id, resource in template["Resources"].items():
            found += _walk(resource.get("Properties", {}), f"{tier}/{logical_id}")
        for name, output in template.get("Outputs", {}).items():
            found += _walk(output["Value"], f"{tier}/output {name}")
    return [*found, *_webhooks(templates), *_injected(templates)]


def _walk(value: object, path: str, name: str = "") -> Iterator[str]:
    match value:
        case {"Ref": _} | {"Fn::GetAtt": _} | {"Fn::ImportValue": _}:
            # Names that CDK makes of a path and its hash.
            return
        case str() | {"Fn::Join": _} | {"Fn::Base64": _}:
            yield from _examine(
                PUBLIC_KEY.sub("", ONLY_AT_DEPLOY.sub("", DYNAMIC_REFERENCE.sub("", text(value)))), path, name
            )
        case dict():
            for key, each in value.items():
                yield from _walk(each, f"{path}/{key}", key)
        case list():
            for each in value:
                yield from _walk(each, path, name)


def _examine(literal: str, path: str, name: str) -> Iterator[str]:
    if literal and SECRET_PROPERTY.search(name) and name not in ABOUT_SECRETS:
        yield f"{path} has a literal where a reference to a secret belongs"
    yield from (f"{path} holds {what}" for what, shape in KNOWN_SHAPES.items() if shape.search(literal))
    keys = filter(_random, WORD.findall(literal))
    yield from (f"{path} holds {key[:4]}..., which looks like a key" for key in keys)


def _random(word: str) -> bool:
    """Whether a word mixes lower case, upper case and digits as no name does."""
    kinds = [(letter.isdigit(), letter.isupper()) for letter in CDK_HASH.sub("", word)]
    changes = sum(here != there for here, there in pairwise(kinds))
    return len(set(kinds)) > 2 and changes > CHANGES * len(kinds)


def _webhooks(templates: Templates) -> Iterator[str]:
    for subscription in of_type(templates, "SNS::Subscription"):
        properties = subscription.properties
        if properties["Protocol"] in {"http", "https"} and not DYNAMIC_REFERENCE.fullmatch(
            text(properties["Endpoint"])
        ):
            yield f"{subscription}: the address of a webhook is a secret and stands there in plain text"


def _injected(templates: Templates) -> Iterator[str]:
    for task in of_type(templates, "ECS::TaskDefinition"):
        for container in task.properties["ContainerDefinitions"]:
            plain = INJECTED & {entry["Name"] for entry in container.get("Environment", [])}
            yield from (f"{task}: {name} is a plain variable and not an injected secret" for name in sorted(plain))
    for template in of_type(templates, "EC2::LaunchTemplate"):
        script = text(template.properties["LaunchTemplateData"]["UserData"])
        yield from (f"{template}: user data sets {name}" for name in sorted(INJECTED) if f"{name}=" in script)
