"""SNS: topics, their policies and subscriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sandbox.aws.adapters.base import Adapter, Properties, only
from sandbox.aws.shapes import Json

_OWN_CALLS = frozenset({"Subscription", "Tags", "TopicName", "DataProtectionPolicy", "DeliveryStatusLogging"})


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class Topic(Adapter):
    """A topic with its inline subscriptions. Not represented: data protection, delivery status logging."""

    resource_type = "AWS::SNS::Topic"
    service = "sns"
    name = "TopicName"
    name_limit = 256
    replaced_by = frozenset({"FifoTopic"})

    def create(self, properties: Properties) -> str:
        """Create the topic with its attributes and subscriptions."""
        made = self.call(
            "create_topic", only(properties, "Tags"), Name=properties["TopicName"], Attributes=_attributes(properties)
        )
        arn = self.begin(made["TopicArn"])
        self._subscribe(arn, [], properties.get("Subscription", []))
        return arn

    def update(self, new: Properties) -> None:
        """Set the attributes that changed and exchange subscriptions."""
        before, after = _attributes(self.properties), _attributes(new)
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key):
                self.call(
                    "set_topic_attributes",
                    TopicArn=self.id,
                    AttributeName=key,
                    AttributeValue=after.get(key, ""),
                )
        self._subscribe(self.id, self.properties.get("Subscription", []), new.get("Subscription", []))

    def delete(self) -> None:
        """Delete the topic and its inline subscriptions."""
        self._subscribe(self.id, self.properties.get("Subscription", []), [])
        self.call("delete_topic", TopicArn=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return ARN and name."""
        return {"TopicArn": self.id, "TopicName": self.id.rsplit(":", 1)[1]}

    def _subscribe(self, arn: str, before: list[Properties], after: list[Properties]) -> None:
        gone = [(item["Protocol"], item["Endpoint"]) for item in before if item not in after]
        for entry in self.call("list_subscriptions_by_topic", TopicArn=arn)["Subscriptions"] if gone else []:
            if (entry["Protocol"], entry["Endpoint"]) in gone:
                self.call("unsubscribe", SubscriptionArn=entry["SubscriptionArn"])
        for item in after:
            if item not in before:
                self.call("subscribe", item, TopicArn=arn)


def _attributes(properties: Properties) -> dict[str, str]:
    return {key: _text(value) for key, value in properties.items() if key not in _OWN_CALLS}


class TopicPolicy(Adapter):
    """The policy of one or several topics; its deletion leaves a policy that allows nobody but the owner."""

    resource_type = "AWS::SNS::TopicPolicy"
    service = "sns"

    def create(self, properties: Properties) -> str:
        """Set the policy."""
        self.update(properties)
        return self.generate_name(self.scope)

    def update(self, new: Properties) -> None:
        """Set the policy on the topics that have it, and take it from those that lost it."""
        for topic in set(self.properties.get("Topics", [])) - set(new["Topics"]):
            self._set(topic, self._owner_only(topic))
        for topic in new["Topics"]:
            self._set(topic, new["PolicyDocument"])

    def delete(self) -> None:
        """Set the default policy."""
        for topic in self.properties["Topics"]:
            self._set(topic, self._owner_only(topic))

    def _set(self, topic: str, policy: Json) -> None:
        self.call("set_topic_attributes", TopicArn=topic, AttributeName="Policy", AttributeValue=_text(policy))

    def _owner_only(self, topic: str) -> dict[str, Any]:
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": ["sns:Publish", "sns:Subscribe", "sns:SetTopicAttributes", "sns:DeleteTopic"],
            "Resource": topic,
            "Condition": {"StringEquals": {"AWS:SourceOwner": self.scope.account}},
        }
        return {"Version": "2008-10-17", "Statement": [statement]}


class Subscription(Adapter):
    """A subscription to a topic; moto confirms none, so an e-mail subscription has its ARN at once."""

    resource_type = "AWS::SNS::Subscription"
    service = "sns"
    replaced_by = frozenset({"TopicArn", "Protocol", "Endpoint", "Region"})

    def create(self, properties: Properties) -> str:
        """Subscribe."""
        made = self.call(
            "subscribe",
            only(properties, "TopicArn", "Protocol", "Endpoint"),
            Attributes=self._attributes(properties),
            ReturnSubscriptionArn=True,
        )
        return str(made["SubscriptionArn"])

    def update(self, new: Properties) -> None:
        """Set the attributes that changed."""
        before, after = self._attributes(self.properties), self._attributes(new)
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key):
                value = after.get(key, "{}")
                self.call(
                    "set_subscription_attributes",
                    SubscriptionArn=self.id,
                    AttributeName=key,
                    AttributeValue=value,
                )

    def delete(self) -> None:
        """Unsubscribe."""
        self.call("unsubscribe", SubscriptionArn=self.id)

    def attributes(self) -> Mapping[str, Any]:
        """Return the ARN."""
        return {"Arn": self.id}

    def _attributes(self, properties: Properties) -> dict[str, str]:
        return {key: _text(value) for key, value in properties.items() if key not in self.replaced_by}
