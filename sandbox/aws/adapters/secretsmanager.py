"""Secrets Manager: secrets, their policies and attachments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only, without


class Secret(Adapter):
    """A secret, given or generated. A generated value stays when other properties change."""

    resource_type = "AWS::SecretsManager::Secret"
    service = "secretsmanager"
    name = "Name"
    name_limit = 512

    def create(self, properties: Properties) -> str:
        """Create the secret; its id is its ARN."""
        plain = without(properties, "GenerateSecretString", "ReplicaRegions")
        if "GenerateSecretString" in properties:
            plain["SecretString"] = self._generate(properties["GenerateSecretString"])
        replicas = {"AddReplicaRegions": properties["ReplicaRegions"]} if "ReplicaRegions" in properties else {}
        return str(self.call("create_secret", plain, replicas)["ARN"])

    def update(self, new: Properties) -> None:
        """Change description, key and value; a changed rule for the value generates a new one."""
        changed = only(new, "Description", "KmsKeyId")
        rule = new.get("GenerateSecretString")
        if rule and rule != self.properties.get("GenerateSecretString"):
            changed["SecretString"] = self._generate(rule)
        elif new.get("SecretString") != self.properties.get("SecretString"):
            changed |= only(new, "SecretString")
        self.call("update_secret", changed, SecretId=self.id)

    def delete(self) -> None:
        """Delete the secret at once, without the recovery window of the console."""
        self.call("delete_secret", SecretId=self.id, ForceDeleteWithoutRecovery=True)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"Id": self.id}

    def _generate(self, rule: Properties) -> str:
        password = self.call("get_random_password", without(rule, "SecretStringTemplate", "GenerateStringKey"))
        generated = str(password["RandomPassword"])
        if "GenerateStringKey" not in rule:
            return generated
        return json.dumps(json.loads(rule["SecretStringTemplate"]) | {rule["GenerateStringKey"]: generated})


class ResourcePolicy(Adapter):
    """A secret's policy."""

    resource_type = "AWS::SecretsManager::ResourcePolicy"
    service = "secretsmanager"
    replaced_by = frozenset({"SecretId"})

    def create(self, properties: Properties) -> str:
        """Put the policy."""
        self.update(properties)
        return str(properties["SecretId"])

    def update(self, new: Properties) -> None:
        """Put the policy again."""
        self.call("put_resource_policy", without(new, "BlockPublicPolicy"))

    def delete(self) -> None:
        """Delete the policy."""
        self.call("delete_resource_policy", SecretId=self.id)


class SecretTargetAttachment(Adapter):
    """The link from a secret to the database that it opens; it writes the target's id into the secret.

    Not represented: host, port and engine of the target, which AWS writes for RDS, Redshift and DocumentDB.
    """

    resource_type = "AWS::SecretsManager::SecretTargetAttachment"
    service = "secretsmanager"
    replaced_by = frozenset({"SecretId"})

    def create(self, properties: Properties) -> str:
        """Write the target into the secret."""
        self.update(properties)
        return str(properties["SecretId"])

    def update(self, new: Properties) -> None:
        """Write the other target into the secret."""
        value = self._value(new["SecretId"])
        value |= {"targetId": new["TargetId"], "targetType": new["TargetType"]}
        self.call("put_secret_value", SecretId=new["SecretId"], SecretString=json.dumps(value))

    def delete(self) -> None:
        """Take the target out of the secret."""
        value = without(self._value(self.id), "targetId", "targetType")
        self.call("put_secret_value", SecretId=self.id, SecretString=json.dumps(value))

    def _value(self, secret: str) -> Properties:
        value: Properties = json.loads(self.call("get_secret_value", SecretId=secret)["SecretString"])
        return value
