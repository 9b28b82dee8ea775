"""Secrets Manager: secrets."""

from __future__ import annotations

import json

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, omit_keys


class Secret(Adapter):
    """A secret with a given or a generated value. A generated value does not change until its rule changes."""

    def translate(self, properties: Properties) -> Properties:
        """Return the properties, with a new value if the rule that generates it has changed."""
        plain, rule = omit_keys(properties, "GenerateSecretString"), properties.get("GenerateSecretString")
        if rule and rule != self.properties.get("GenerateSecretString"):
            plain["SecretString"] = self._generate_value(rule)
        return plain

    def _generate_value(self, rule: Properties) -> str:
        password = self.call("get_random_password", omit_keys(rule, "SecretStringTemplate", "GenerateStringKey"))
        generated = str(password["RandomPassword"])
        if "GenerateStringKey" not in rule:
            return generated
        return json.dumps(json.loads(rule["SecretStringTemplate"]) | {rule["GenerateStringKey"]: generated})
