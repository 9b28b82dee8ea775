"""Rule that templates contain no secrets: passwords are references, and no text looks like a key."""

import re
from collections.abc import Iterator
from itertools import pairwise

from tests.contract.templates import Templates, resources_by_type, text
from voice_blueprint.contract.environment import TOKEN_KEY, VALKEY_PASSWORD

SECRET_PROPERTY = re.compile(r"password|passwd|secret|credential|api_?key|private_?key|auth_?token", re.IGNORECASE)
SECRET_SETTINGS = {
    "GenerateSecretString", "SecretStringTemplate", "GenerateStringKey", "PasswordLength", "ExcludePunctuation",
    "Secrets", "ApiKeyRequired", "ApiKeySourceType", "SecretId",
}  # fmt: skip
"""Properties that configure how a secret is generated or referenced."""

INJECTED_SECRETS = {TOKEN_KEY.name, VALKEY_PASSWORD.name}
"""Variables that a launcher reads from Secrets Manager when it starts the container."""

DYNAMIC_REFERENCE = re.compile(r"\{\{resolve:(secretsmanager|ssm-secure):[^}]+\}\}")
DEPLOY_TIME_VALUE = re.compile(r"<[^<>]*>")
PUBLIC_KEY = re.compile(r"MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE[A-Za-z0-9+/]{86}==")
"""A public key on the curve P-256, with its standard prefix."""
SECRET_FORMATS = {
    "an AWS access key": re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "a chat webhook": re.compile(r"https://hooks\.\S+|https://[\w.-]*webhook\S+"),
    "a token": re.compile(r"\b(xox[abprs]-|gh[pousr]_|eyJ[\w-]{10,}\.)"),
}

WORD = re.compile(r"[A-Za-z0-9+]{20,}")
CDK_HASH = re.compile(r"[0-9A-F]{8}$")
"""CDK ends generated names with a hash of their path."""
MIN_CLASS_CHANGES = 0.45
"""Minimum fraction of adjacent characters of different classes (lower case, upper case, digit).

It is 0.62 in random text, and much lower in names and in digests, which have no upper-case letters.
"""


def violations(templates: Templates) -> list[str]:
    """Return literals that should be references, and text that looks like a secret."""
    found: list[str] = []
    for tier, template in templates.items():
        for logical_id, resource in template["Resources"].items():
            found += _walk(resource.get("Properties", {}), f"{tier}/{logical_id}")
        for name, output in template.get("Outputs", {}).items():
            found += _walk(output["Value"], f"{tier}/output {name}")
    return [*found, *_webhooks(templates), *_plain_text_secrets(templates)]


def _walk(value: object, path: str, name: str = "") -> Iterator[str]:
    match value:
        case {"Ref": _} | {"Fn::GetAtt": _} | {"Fn::ImportValue": _}:
            # Names that CDK generates from a path and its hash.
            return
        case str() | {"Fn::Join": _} | {"Fn::Base64": _}:
            yield from _examine(
                PUBLIC_KEY.sub("", DEPLOY_TIME_VALUE.sub("", DYNAMIC_REFERENCE.sub("", text(value)))), path, name
            )
        case dict():
            for key, each in value.items():
                yield from _walk(each, f"{path}/{key}", key)
        case list():
            for each in value:
                yield from _walk(each, path, name)


def _examine(literal: str, path: str, name: str) -> Iterator[str]:
    if literal and SECRET_PROPERTY.search(name) and name not in SECRET_SETTINGS:
        yield f"{path} has a literal where a reference to a secret belongs"
    yield from (f"{path} holds {what}" for what, shape in SECRET_FORMATS.items() if shape.search(literal))
    # A resource named after its logical id has a name that CDK generates from a path.
    keys = [word for word in WORD.findall(literal) if _looks_random(word) and word not in path]
    yield from (f"{path} holds {key[:4]}..., which looks like a key" for key in keys)


def _looks_random(word: str) -> bool:
    """Return whether a word mixes lower case, upper case and digits like random text."""
    kinds = [(letter.isdigit(), letter.isupper()) for letter in CDK_HASH.sub("", word)]
    changes = sum(here != there for here, there in pairwise(kinds))
    return len(set(kinds)) > 2 and changes > MIN_CLASS_CHANGES * len(kinds)


def _webhooks(templates: Templates) -> Iterator[str]:
    for subscription in resources_by_type(templates, "SNS::Subscription"):
        properties = subscription.properties
        if properties["Protocol"] in {"http", "https"} and not DYNAMIC_REFERENCE.fullmatch(
            text(properties["Endpoint"])
        ):
            yield f"{subscription}: the address of a webhook is a secret and stands there in plain text"


def _plain_text_secrets(templates: Templates) -> Iterator[str]:
    for task in resources_by_type(templates, "ECS::TaskDefinition"):
        for container in task.properties["ContainerDefinitions"]:
            plain = INJECTED_SECRETS & {entry["Name"] for entry in container.get("Environment", [])}
            yield from (f"{task}: {name} is a plain variable and not an injected secret" for name in sorted(plain))
    for template in resources_by_type(templates, "EC2::LaunchTemplate"):
        script = text(template.properties["LaunchTemplateData"]["UserData"])
        yield from (f"{template}: user data sets {name}" for name in sorted(INJECTED_SECRETS) if f"{name}=" in script)
