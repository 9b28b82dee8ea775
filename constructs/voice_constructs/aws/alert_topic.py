"""SNS topic for alarms and the budget, with its subscribers."""

from dataclasses import dataclass

from aws_cdk import RemovalPolicy, SecretValue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from voice_blueprint.file.model.observability import Observability
from voice_constructs.aws.encryption import EncryptionKey
from voice_constructs.aws.pseudo import ACCOUNT_ID

PUBLISHERS = ("cloudwatch", "budgets")
"""Services that publish to the topic: alarms and the budget."""


@dataclass(frozen=True)
class AlertTopicProps:
    """Properties of ``AlertTopic``.

    Attributes:
        name: Name of the topic.
        key_removal_policy: Removal policy of the key.
    """

    name: str
    observability: Observability
    key_removal_policy: RemovalPolicy


class AlertTopic(Construct):
    """An encrypted topic to which only this account's alarms and budgets can publish.

    Attributes:
        arn: ARN of the topic.
    """

    def __init__(self, scope: Construct, id_: str, *, props: AlertTopicProps) -> None:
        super().__init__(scope, id_)
        key = EncryptionKey(self, "Key", purpose="messages of alarms", removal_policy=props.key_removal_policy)
        key.allow_publishers(PUBLISHERS)
        self._topic = sns.Topic(self, "Topic", topic_name=props.name, master_key=key, enforce_ssl=True)
        self.arn = self._topic.topic_arn
        self._topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(f"{service}.amazonaws.com") for service in PUBLISHERS],
                actions=["sns:Publish"],
                resources=[self.arn],
                conditions={"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}},
            )
        )
        if props.observability.email:
            self._subscribe("Email", sns.SubscriptionProtocol.EMAIL, props.observability.email)
        if props.observability.chat_webhook_secret:
            # The URL is a credential: CloudFormation resolves it at deployment, so no template contains it.
            url = SecretValue.secrets_manager(props.observability.chat_webhook_secret).unsafe_unwrap()
            self._subscribe("Chat", sns.SubscriptionProtocol.HTTPS, url)

    def _subscribe(self, id_: str, protocol: sns.SubscriptionProtocol, endpoint: str) -> None:
        sns.Subscription(self, id_, topic=self._topic, protocol=protocol, endpoint=endpoint)
