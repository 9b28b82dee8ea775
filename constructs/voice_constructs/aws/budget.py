"""The cost budget."""

from dataclasses import dataclass

from aws_cdk import aws_budgets as budgets
from constructs import Construct

SPENT_PERCENT = 80
FORECAST_PERCENT = 100


@dataclass(frozen=True)
class CostBudgetProps:
    """What ``CostBudget`` is made from.

    Attributes:
        limit_usd: For a calendar month.
        topic_arn: Told when 80 % is spent, and when the forecast for the month passes 100 %.
        runbook_url: AWS Budgets has no place for text of ours in its message; the budget carries it as a tag.
    """

    name: str
    limit_usd: int
    topic_arn: str
    runbook_url: str


class CostBudget(Construct):
    """A monthly budget of the whole account.

    Not of this deployment's tag alone: costs can be filtered by a tag only after someone has activated it for cost
    allocation in the billing console, and until then such a budget would read zero and stay silent.
    """

    def __init__(self, scope: Construct, id_: str, *, props: CostBudgetProps) -> None:
        super().__init__(scope, id_)
        notified = {"ACTUAL": SPENT_PERCENT, "FORECASTED": FORECAST_PERCENT}
        budgets.CfnBudget(
            self,
            "Monthly",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=props.name,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=props.limit_usd, unit="USD"),
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[
                        budgets.CfnBudget.SubscriberProperty(subscription_type="SNS", address=props.topic_arn)
                    ],
                )
                for kind, percent in notified.items()
            ],
            resource_tags=[budgets.CfnBudget.ResourceTagProperty(key="voice-serve:runbook", value=props.runbook_url)],
        )
