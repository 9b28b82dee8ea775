"""The cost budget."""

from dataclasses import dataclass

from aws_cdk import aws_budgets as budgets
from constructs import Construct

MAX_BUDGET_SPENT_PERCENT = 80
MAX_BUDGET_FORECAST_PERCENT = 100


@dataclass(frozen=True)
class CostBudgetProps:
    """Properties of ``CostBudget``.

    Attributes:
        limit_usd: Limit per calendar month.
        topic_arn: Topic that is notified when actual costs reach 80 % or forecast costs reach 100 % of the limit.
        runbook_url: URL of the runbook. Messages of AWS Budgets cannot contain custom text, so the URL is a tag of the
            budget.
    """

    name: str
    limit_usd: int
    topic_arn: str
    runbook_url: str


class CostBudget(Construct):
    """A monthly budget for the whole account.

    The budget is not limited to the deployment's tag, since cost allocation by a tag must first be activated in the
    billing console; until then, such a budget would remain at zero and never send a notification.
    """

    def __init__(self, scope: Construct, id_: str, *, props: CostBudgetProps) -> None:
        super().__init__(scope, id_)
        notified = {"ACTUAL": MAX_BUDGET_SPENT_PERCENT, "FORECASTED": MAX_BUDGET_FORECAST_PERCENT}
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
