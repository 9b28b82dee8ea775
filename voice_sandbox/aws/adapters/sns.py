"""SNS: topics and their policies."""

from __future__ import annotations

from typing import Any

from voice_sandbox.aws.adapters.adapter import Adapter, Properties, find_changed_keys, omit_keys, select_keys


class Topic(Adapter):
    """A topic, whose properties are attributes in the API. Inline subscriptions are not supported."""

    def translate(self, properties: Properties) -> Properties:
        """Convert the topic's properties to attributes."""
        attributes = omit_keys(properties, "Tags", "TopicName")
        return {"Name": properties["TopicName"], "Attributes": attributes, **select_keys(properties, "Tags")}

    def configure(self, before: Properties, after: Properties) -> None:
        """Set the attributes that differ."""
        for key in find_changed_keys(before["Attributes"], after["Attributes"]):
            value = after["Attributes"].get(key, "")
            self.call("set_topic_attributes", TopicArn=self.id, AttributeName=key, AttributeValue=value)


class TopicPolicy(Adapter):
    """The policy of one or more topics. Its deletion restores the default policy, which only permits the owner."""

    def configure(self, before: Properties, after: Properties) -> None:
        """Set the policy for the topics in the template, and restore the default policy for removed topics."""
        for topic in before.get("Topics", []):
            if topic not in after["Topics"]:
                self._set_policy(topic, self._build_owner_only_policy(topic))
        for topic in after["Topics"]:
            self._set_policy(topic, after["PolicyDocument"])

    def delete(self) -> None:
        """Restore the default policy of all topics."""
        self.configure(self.properties, {"Topics": []})

    def _set_policy(self, topic: str, policy: Properties) -> None:
        self.call("set_topic_attributes", TopicArn=topic, AttributeName="Policy", AttributeValue=policy)

    def _build_owner_only_policy(self, topic: str) -> dict[str, Any]:
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": ["sns:Publish", "sns:Subscribe", "sns:SetTopicAttributes", "sns:DeleteTopic"],
            "Resource": topic,
            "Condition": {"StringEquals": {"AWS:SourceOwner": self.scope.account}},
        }
        return {"Version": "2008-10-17", "Statement": [statement]}
