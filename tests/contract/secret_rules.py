"""No template holds a secret: passwords are references, and nothing looks like a key."""

import re
from collections.abc import Iterator
from itertools import pairwise

from tests.contract.templates import Templates, of_type, text

SECRET_PROPERTY = re.compile(r"password|passwd|secret|token|credential|api_?key|private_?key|webhook", re.IGNORECASE)
ABOUT_SECRETS = {
    "GenerateSecretString", "SecretStringTemplate", "GenerateStringKey", "PasswordLength", "ExcludePunctuation",
    "Secrets", "HttpTokens", "ApiKeyRequired", "ApiKeySourceType", "SecretId",
}  # fmt: skip
"""Properties that say how a secret is made, found or asked for."""

DYNAMIC_REFERENCE = re.compile(r"\{\{resolve:(secretsmanager|ssm-secure):[^}]+\}\}")
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

STRUCTURE = {"Ref", "Fn::GetAtt", "Fn::ImportValue", "DependsOn", "Export", "Condition"}
"""Names that CDK makes of a hash and the path of a construct."""


def violations(templates: Templates) -> list[str]:
    """Return literals where a reference belongs, and text that looks like a secret."""
    return [
        *(problem for tier, template in templates.items() for problem in _walk(template, tier)),
        *_webhooks(templates),
    ]


def _walk(value: object, path: str, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key not in STRUCTURE:
                # Logical ids and the names of outputs and parameters are CDK's.
                yield from _walk(each, f"{path}/{key}", key)
    elif isinstance(value, list):
        for each in value:
            yield from _walk(each, path, name)
    elif isinstance(value, str):
        rest = DYNAMIC_REFERENCE.sub("", value)
        if rest and SECRET_PROPERTY.search(name) and name not in ABOUT_SECRETS and "Resources" in path.split("/")[1:2]:
            yield from _literal(path, name, rest)
        yield from (f"{path} holds {what}" for what, shape in KNOWN_SHAPES.items() if shape.search(rest))
        yield from (
            f"{path} holds {word[:4]}..., which looks like a key" for word in WORD.findall(rest) if _random(word)
        )


def _literal(path: str, name: str, value: str) -> Iterator[str]:
    depth = path.split("/")
    if depth[-1] == name and "Properties" in depth:
        yield f"{path} is a literal of {len(value)} characters"


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
