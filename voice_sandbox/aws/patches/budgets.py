"""Budgets: changes to a budget, and the subscribers to its notifications."""

from __future__ import annotations

import json

from moto.budgets import urls
from moto.budgets.models import Budget
from moto.budgets.responses import BudgetsResponse

from voice_sandbox.aws.patches.base import replace_response_class


class PatchedBudgets(BudgetsResponse):
    """moto's Budgets API, extended with the operations that moto lacks."""

    def update_budget(self) -> str:
        new = self._get_param("NewBudget")
        budget = self._find_budget(new["BudgetName"])
        budget.budget = {**budget.budget, **new}
        return "{}"

    def describe_subscribers_for_notification(self) -> str:
        notification = self._get_param("Notification")
        notifications = self._find_budget(self._get_param("BudgetName")).notifications
        subscriber_lists = [item.subscribers for item in notifications if item.details == notification]
        return json.dumps({"Subscribers": subscriber_lists[0] if subscriber_lists else []})

    def _find_budget(self, name: str) -> Budget:
        account = self._get_param("AccountId")
        self.backend.describe_budget(account, name)  # rejects an unknown name
        return self.backend.budgets[account][name]


def install() -> None:
    """Install the patch."""
    replace_response_class(urls, BudgetsResponse, PatchedBudgets)
