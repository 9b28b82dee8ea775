"""The alert drill: metric -> alarm -> composite alarm -> SNS message to an operator.

moto neither evaluates alarms nor runs their actions. The drill does both as CloudWatch would, through the SNS API.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

from voice_blueprint.aws import names
from voice_blueprint.aws.alarms import AlarmState, is_composite_in_alarm
from voice_blueprint.contract.metrics import NAMESPACE
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.file.model.scaling import Comparison
from voice_blueprint.observability.aws.alerts import CALLERS_AFFECTED_ALARM
from voice_sandbox.rehearsals.live_alarm import LiveAlarm

if TYPE_CHECKING:
    from types_boto3_cloudwatch import CloudWatchClient
    from types_boto3_cloudwatch.type_defs import CompositeAlarmTypeDef
    from types_boto3_sns import SNSClient

_DELIVERY_TIMEOUT_S = 10


class DrillError(Exception):
    """An alarm did not fire, or no notification was sent."""


@dataclass(frozen=True)
class AlertMessage:
    """The message that an operator received."""

    subject: str
    alarm: str
    cause: str
    description: str


class AlertDrill:
    """Triggers one alarm in the composite "callers are affected" and waits for the message."""

    def __init__(self, deployment: Deployment, *, cloudwatch: CloudWatchClient, sns: SNSClient) -> None:
        self._deployment = deployment
        self._cloudwatch = cloudwatch
        self._sns = sns

    def run(self) -> AlertMessage:
        """Run the drill.

        Raises:
            DrillError: The alarm did not fire, or no message arrived.
        """
        name = names.build_alert_alarm_name(self._deployment, CALLERS_AFFECTED_ALARM)
        (composite,) = self._cloudwatch.describe_alarms(AlarmNames=[name], AlarmTypes=["CompositeAlarm"])[
            "CompositeAlarms"
        ]
        child = self._trigger_alarm(composite)
        states = {
            alarm["AlarmName"]: AlarmState(alarm["StateValue"])
            for page in self._cloudwatch.get_paginator("describe_alarms").paginate(
                AlarmTypes=["MetricAlarm", "CompositeAlarm"]
            )
            for alarm in (*page["MetricAlarms"], *page["CompositeAlarms"])
        }
        if not is_composite_in_alarm(composite["AlarmRule"], states):
            raise DrillError(f"{child} is in ALARM, but {name} is not: {composite['AlarmRule']}")
        (topic,) = composite["AlarmActions"]
        with _subscribe_endpoint(self._sns, topic) as inbox:
            self._notify(topic, composite, child)
            try:
                return inbox.get(timeout=_DELIVERY_TIMEOUT_S)
            except queue.Empty:
                raise DrillError(f"no message from {topic} within {_DELIVERY_TIMEOUT_S} s") from None
            finally:
                self._cloudwatch.set_alarm_state(AlarmName=child, StateValue="OK", StateReason="the drill is over")

    def _trigger_alarm(self, composite: CompositeAlarmTypeDef) -> str:
        """Trigger the composite's first alarm on one of this project's metrics, and return the alarm's name."""
        alarms = self._cloudwatch.describe_alarms(AlarmNamePrefix=f"{self._deployment.name}-")["MetricAlarms"]
        name = next(
            alarm["AlarmName"]
            for alarm in alarms
            if f'"{alarm["AlarmName"]}"' in composite["AlarmRule"]
            and alarm.get("Namespace") == NAMESPACE
            and "Statistic" in alarm
        )
        alarm = LiveAlarm(self._cloudwatch, name)
        beyond = 1 if alarm.rule.comparison is Comparison.ABOVE else -1
        clock = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
        state = AlarmState.OK
        for _ in range(alarm.rule.datapoints_to_alarm):
            alarm.publish(alarm.rule.threshold + beyond, clock)
            clock += alarm.period
            state = alarm.evaluate_state(clock, state)
        if state is not AlarmState.ALARM:
            raise DrillError(f"{name} did not fire")
        self._cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="drill")
        return name

    def _notify(self, topic: str, composite: CompositeAlarmTypeDef, child: str) -> None:
        # The fields and the subject are those of CloudWatch's own notifications.
        message = {
            "AlarmName": composite["AlarmName"],
            "AlarmDescription": composite["AlarmDescription"],
            "NewStateValue": "ALARM",
            "OldStateValue": "OK",
            "NewStateReason": f"{child} transitioned to ALARM",
            "AlarmRule": composite["AlarmRule"],
        }
        subject = f'ALARM: "{composite["AlarmName"]}" in {self._deployment.aws.region}'
        self._sns.publish(TopicArn=topic, Subject=subject[:100], Message=json.dumps(message))


@contextmanager
def _subscribe_endpoint(sns: SNSClient, topic: str) -> Iterator[queue.Queue[AlertMessage]]:
    """Subscribe an HTTP endpoint in this process to a topic for the duration of the `with` block."""
    inbox: queue.Queue[AlertMessage] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if body["Type"] == "Notification":
                alarm_message = json.loads(body["Message"])
                inbox.put(
                    AlertMessage(
                        body["Subject"],
                        alarm_message["AlarmName"],
                        alarm_message["NewStateReason"],
                        alarm_message["AlarmDescription"],
                    )
                )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}/"
    subscription = sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=endpoint, ReturnSubscriptionArn=True)
    try:
        yield inbox
    finally:
        sns.unsubscribe(SubscriptionArn=subscription["SubscriptionArn"])
        server.shutdown()
        server.server_close()
