"""Secrets Manager: secrets."""

from __future__ import annotations

import json

from sandbox.aws.adapters.adapter import Adapter, Properties, without


class Secret(Adapter):
    """A secret, given or generated. A generated value stays until the rule for it changes."""

    def translated(self, properties: Properties) -> Properties:
        """Put a new value in the place of a new rule."""
        plain, rule = without(properties, "GenerateSecretString"), properties.get("GenerateSecretString")
        if rule and rule != self.properties.get("GenerateSecretString"):
            plain["SecretString"] = self._generate(rule)
        return plain

    def _generate(self, rule: Properties) -> str:
        password = self.call("get_random_password", without(rule, "SecretStringTemplate", "GenerateStringKey"))
        generated = str(password["RandomPassword"])
        if "GenerateStringKey" not in rule:
            return generated
        return json.dumps(json.loads(rule["SecretStringTemplate"]) | {rule["GenerateStringKey"]: generated})
