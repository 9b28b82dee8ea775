"""Budgets: cost limits with their notifications."""

from __future__ import annotations

from sandbox.aws.adapters.base import Adapter, Properties


class Budget(Adapter):
    """A budget; moto counts no cost, so it never notifies."""

    resource_type = "AWS::Budgets::Budget"
    service = "budgets"
    name_limit = 100
    replaced_by = frozenset({"NotificationsWithSubscribers", "ResourceTags"})

    def create(self, properties: Properties) -> str:
        """Create the budget, under a generated name if the template gives none."""
        name = str(properties["Budget"].get("BudgetName") or self.generate_name(self.scope))
        budget = {**properties["Budget"], "BudgetName": name}
        self.call("create_budget", properties, AccountId=self.scope.account, Budget=budget)
        return name

    @classmethod
    def must_replace(cls, old: Properties, new: Properties) -> bool:
        """Replace a budget that gets another name, too; the name lies one level down."""
        renamed = old["Budget"].get("BudgetName") != new["Budget"].get("BudgetName")
        return renamed or super().must_replace(old, new)

    def update(self, new: Properties) -> None:
        """Change the budget itself."""
        budget = {**new["Budget"], "BudgetName": self.id}
        self.call("update_budget", AccountId=self.scope.account, NewBudget=budget)

    def delete(self) -> None:
        """Delete the budget."""
        self.call("delete_budget", AccountId=self.scope.account, BudgetName=self.id)
