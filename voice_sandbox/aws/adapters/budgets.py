"""Budgets: cost limits with their notifications."""

from __future__ import annotations

from voice_sandbox.aws.adapters.adapter import Adapter, Properties


class Budget(Adapter):
    """A budget, whose name is a nested property."""

    def translate(self, properties: Properties) -> Properties:
        """Add the account, and a name if the template omits it."""
        name = properties["Budget"].get("BudgetName") or self.id or self.generate_name()
        return {**properties, "AccountId": self.scope.account, "Budget": {**properties["Budget"], "BudgetName": name}}

    def configure(self, before: Properties, after: Properties) -> None:
        """Update the budget if its definition has changed."""
        if before["Budget"] != after["Budget"]:
            self.call("update_budget", AccountId=self.scope.account, NewBudget=after["Budget"])
