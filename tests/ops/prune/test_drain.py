"""`voice prune` waits for hosts and tasks, and reports progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from voice_ops.prune import drain
from voice_ops.prune.drain import DrainError
from voice_ops.prune.removals import SERVICE_TYPE, Removal


def host_counts(*counts: int) -> Callable[[], dict[str, int]]:
    """Return a function whose successive calls return these numbers of hosts of a group."""
    left = iter(counts)
    return lambda: {"small-cpu": count} if (count := next(left)) else {}


def test_each_change_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "POLL_INTERVAL_S", 0.0)
    told: list[str] = []
    drain._wait_until_drained(host_counts(2, 2, 1, 0), 60, told.append)
    assert told == [f"draining: {count} of small-cpu, for 60 s at most" for count in (2, 1)]


def test_remaining_hosts_end_the_command_before_any_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "POLL_INTERVAL_S", 0.0)
    with pytest.raises(
        DrainError, match=r"1 of small-cpu still there after 0 s, and may take 0 s.*nothing was deleted"
    ):
        drain._wait_until_drained(lambda: {"small-cpu": 1}, 0, lambda _: None)


class Route53:
    """Fake Route 53 with the health check of a region, whose gateway may respond."""

    def __init__(self) -> None:
        self.endpoint_responds, self.settings = True, dict[str, bool]()

    def update_health_check(self, *, HealthCheckId: str, **settings: bool) -> None:  # noqa: N803
        assert HealthCheckId == "check"
        self.settings |= settings

    @property
    def sends_callers(self) -> bool:
        """Evaluate the check: a disabled one counts as healthy, and its status can be inverted as well."""
        is_healthy = self.endpoint_responds or self.settings.get("Disabled", False)
        return is_healthy != self.settings.get("Inverted", False)


@pytest.mark.parametrize("responds_first", [True, False])
def test_a_drained_region_gets_no_callers_after_its_gateway_has_stopped(
    monkeypatch: pytest.MonkeyPatch, responds_first: bool
) -> None:
    route53 = Route53()
    route53.endpoint_responds = responds_first
    monkeypatch.setattr(time, "sleep", lambda _: None)
    account = SimpleNamespace(region="us-west-2", session=SimpleNamespace(client=lambda _: route53))
    removal = SimpleNamespace(account=account, iter_resource_ids=lambda _: iter([("edge", "check")]))
    drain._redirect_callers(cast("Removal", removal), lambda _: None)
    assert not route53.sends_callers
    route53.endpoint_responds = False
    assert not route53.sends_callers


class Ecs:
    """Fake ECS with a service of two tasks, one of which is protected for a time."""

    def __init__(self, calls_for_s: float) -> None:
        self.calls_for_s, self.tasks, self.now, self.stopped = calls_for_s, {"idle", "busy"}, 0.0, list[str]()

    def update_service(self, **_: Any) -> None:  # noqa: ANN401
        self.tasks.discard("idle")

    def describe_services(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401
        if self.now >= self.calls_for_s:
            self.tasks.clear()
        return {"services": [{"serviceName": "agents", "runningCount": len(self.tasks)}]}

    def describe_scalable_targets(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"ScalableTargets": []}

    def stop_task(self, *, task: str, **_: Any) -> None:  # noqa: ANN401
        self.stopped.append(task)
        self.tasks.discard(task)

    def sleep(self, duration_s: float) -> None:
        self.now += duration_s


@pytest.mark.parametrize(("calls_for_s", "stopped"), [(1800.0, []), (1e9, ["busy"])])
def test_protected_tasks_are_stopped_after_the_maximum_session_duration(
    monkeypatch: pytest.MonkeyPatch, calls_for_s: float, stopped: list[str]
) -> None:
    ecs, told = Ecs(calls_for_s), list[str]()
    monkeypatch.setattr(time, "sleep", ecs.sleep)
    monkeypatch.setattr(time, "monotonic", lambda: ecs.now)
    deployment = SimpleNamespace(name="small", aws=SimpleNamespace(edge=SimpleNamespace(session_max_s=3600)))
    account = SimpleNamespace(
        deployment=deployment,
        session=SimpleNamespace(client=lambda _: ecs),
        iter_paginated_items=lambda *_, **__: iter(sorted(ecs.tasks)),
    )

    def iter_resource_ids(kind: str) -> Iterator[tuple[str, str]]:
        return iter([("small-agents", "arn:aws:ecs:us-east-1:1:service/c/agents")] if kind == SERVICE_TYPE else [])

    drain.drain_removed_stacks(
        cast("Removal", SimpleNamespace(is_whole_region=False, account=account, iter_resource_ids=iter_resource_ids)),
        told.append,
    )
    assert (ecs.tasks, ecs.stopped) == (set(), stopped)
    assert any("they are stopped now" in line for line in told) == bool(stopped)
    assert ecs.now >= min(calls_for_s, 3600)
