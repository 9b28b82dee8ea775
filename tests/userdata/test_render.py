"""Text of the rendered script, and values that are refused before rendering."""

import bz2
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from tests.userdata import hosts
from tests.userdata.hosts import image
from voice_blueprint.contract.environment import VALKEY_PASSWORD
from voice_blueprint.contract.metrics import StartPhase
from voice_userdata import (
    MAX_USER_DATA_BYTES,
    CommandReadinessCheck,
    Container,
    HostUserDataConfig,
    LifecycleHooks,
    Mount,
    PortReadinessCheck,
    calculate_max_deployed_bytes,
    render_user_data,
    unpack_script,
)

STEPS = sorted(Path(str(files("voice_userdata") / "steps")).glob("*.sh"))
TOKEN = "${Token[TOKEN.12]}"
MAX_COMMON_BYTES = 11_000
"""Maximum size of rendered scripts, which reserves a third of EC2's limit for longer names, steps and containers."""


def shellcheck(*paths: Path) -> str:
    command = shutil.which("shellcheck") or str(Path(sys.executable).with_name("shellcheck"))
    return subprocess.run([command, *paths], capture_output=True, text=True, check=False).stdout  # noqa: S603


def test_step_files_are_clean() -> None:
    assert len(STEPS) > 10
    assert shellcheck(*STEPS, Path(__file__).parent / "fakes/fake.sh") == ""


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.stem)
def test_step_files_are_unchanged_without_comments(step: Path) -> None:
    """Rendering removes comments and indentation line by line, which would break a heredoc."""
    text = step.read_text()
    assert text.startswith("# shellcheck shell=bash\n")
    assert "<<" not in text.replace("<<<", "")
    assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("kind", hosts.ALL)
def test_rendered_script_is_clean(kind: str, tmp_path: Path) -> None:
    script = tmp_path / f"{kind}.sh"
    script.write_text(unpack_script(render_user_data(hosts.ALL[kind]())))
    assert shellcheck(script) == ""
    subprocess.run(["/bin/bash", "-n", script], check=True)  # noqa: S603


@pytest.mark.parametrize("kind", hosts.ALL)
def test_rendered_script_has_room_for_tokens(kind: str) -> None:
    assert calculate_max_deployed_bytes(render_user_data(hosts.ALL[kind]())) < MAX_COMMON_BYTES


def test_the_size_is_computed_after_resolving_tokens() -> None:
    """The secret of a deployment with long names: its ARN is far longer than its token."""
    boot = replace(hosts.vad(), log_group=TOKEN, environment={"VOICE_VALKEY_USER": TOKEN})
    arn = f"arn:aws-us-gov:secretsmanager:us-gov-west-1:123456789012:secret:{'n' * 64}-AbCdEf"
    deployed = render_user_data(boot).replace(TOKEN, arn)
    assert (
        len(render_user_data(boot).encode())
        < len(deployed.encode())
        <= calculate_max_deployed_bytes(render_user_data(boot))
    )


def test_the_compressed_text_contains_the_script(tmp_path: Path) -> None:
    boot = hosts.vad()
    script = tmp_path / "user-data.sh"
    script.write_text(render_user_data(boot).replace('main "$@"', 'printf "%s" "$BODIES"'))
    environment = os.environ | {"VOICE_ROOT": str(tmp_path)}
    shown = subprocess.run(["/bin/bash", script], env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert shown in unpack_script(render_user_data(boot))
    assert len(shown) > 8_000


def test_the_output_does_not_depend_on_the_machine() -> None:
    """The output of bzip2 is identical on all machines.

    With gzip it would differ, so that a deployment from another machine would replace all hosts.
    """
    packed = bz2.compress(b"set -Eeuo pipefail\n" * 500)
    assert hashlib.sha256(packed).hexdigest() == "61aa846d41793740ab815ec6f5c4dcda3509c0c41495e3ecae69976d123c7141"


def test_every_step_file_is_used_by_some_host() -> None:
    scripts = [unpack_script(render_user_data(boot())) for boot in hosts.ALL.values()]
    for step in STEPS:
        last = [line.strip() for line in step.read_text().splitlines() if len(line.strip()) > 5][-1]
        assert any(last in script for script in scripts), step.name


def test_a_script_that_is_too_large_is_refused_with_its_size() -> None:
    boot = replace(hosts.vad(), environment={"VOICE_NOTE": "x" * MAX_USER_DATA_BYTES})
    with pytest.raises(ValueError, match=rf"vad-use1-az1 is \d{{5}} bytes, but EC2 accepts only {MAX_USER_DATA_BYTES}"):
        render_user_data(boot)


def test_cdk_tokens_survive() -> None:
    container = replace(hosts.vad().containers[0], image_uri=TOKEN)
    boot = replace(hosts.vad(), containers=(container,), log_group=TOKEN, environment={"VOICE_VALKEY_USER": TOKEN})
    script = render_user_data(boot)
    assert f"LOG_GROUP='{TOKEN}'" in script
    assert f"VOICE_VALKEY_USER={TOKEN}'\n" in script
    assert f"[vad-dataplane]='{TOKEN}'" in script


def test_values_are_quoted(tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    nasty = f"a'b\"c $(touch {owned}) `id` \\"
    boot = replace(hosts.vad(), log_group=nasty, environment={"VOICE_NOTE": nasty})
    script = tmp_path / "user-data.sh"
    script.write_text(render_user_data(boot).replace('main "$@"', 'printf "%s|%s" "$LOG_GROUP" "$COMMON"'))
    environment = {"PATH": "/usr/bin:/bin", "VOICE_ROOT": str(tmp_path)}
    shown = subprocess.run(  # noqa: S603 - the script under test
        ["/bin/bash", script], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith(f"{nasty}|")
    assert f"VOICE_NOTE={nasty}" in shown
    assert not owned.exists()


def _container(**changes: object) -> Container:
    return replace(hosts.vad().containers[0], **changes)  # type: ignore[arg-type]


def _host(**changes: object) -> HostUserDataConfig:
    return replace(hosts.vad(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda: _host(mtu=None), "native XDP on ENA supports an MTU of at most 3498, not 9001"),
        (lambda: _host(data_path=None, mtu=8901), "ENA Express supports an MTU of at most 8900, not 8901"),
        (lambda: _host(accelerator="gpu"), "has either a packet data path or an accelerator"),
        (lambda: _host(containers=()), "requires at least one container"),
        (lambda: _host(containers=hosts.vad().containers[:1] * 2), "repeat: vad-dataplane, vad-dataplane"),
        (lambda: _host(containers=(_container(environment={"VOICE_HOST": "x"}),)), "VOICE_HOST is set"),
        (lambda: _host(containers=(_container(environment={"VOICE_FLEET": "x"}),)), "VOICE_FLEET is set"),
        (lambda: _host(environment={"VOICE_HOST": "x"}), "VOICE_HOST is set"),
        (lambda: _host(environment={VALKEY_PASSWORD.name: "x"}), "every process of the host can read"),
        (lambda: _container(start_log_prefix_by_phase={StartPhase.COMPILE: "a=b"}), "has one of"),
        (
            lambda: _host(
                containers=(
                    _container(start_log_prefix_by_phase={}),
                    _container(name="other", start_log_prefix_by_phase={}),
                )
            ),
            "not vad-dataplane, other",
        ),
        (lambda: _container(name="VAD"), "'VAD' must be lower-case words with hyphens, such as vad-dataplane"),
        (lambda: _container(image_uri="registry/voice:latest"), "has no digest"),
        (lambda: _container(environment={VALKEY_PASSWORD.name: "x"}), "every process of the host can read"),
        (lambda: _container(environment={"lower": "x"}), "'lower' is not a valid variable name"),
        (
            lambda: LifecycleHooks("a", "b", heartbeat_timeout_s=14, ready_budget_s=1, drain_budget_s=1),
            "heartbeat_s=14",
        ),
        (lambda: render_user_data(_host(log_group="a\nb")), "spans several lines"),
        (lambda: render_user_data(_host(environment={"VOICE_NOTE": "a\nb"})), "spans several lines"),
        (lambda: render_user_data(_host(log_group="a\rb")), "spans several lines"),
        (lambda: render_user_data(_host(log_group="a\0b")), "spans several lines"),
        (lambda: _container(mounts=(Mount("/a b", "/c"),)), "mount '/a b' has a space"),
        (lambda: _container(start_log_prefix_by_phase={StartPhase.COMPILE: "a|b"}), "has one of"),
    ],
)
def test_values_that_would_fail_on_a_host_are_refused(make: Callable[[], object], answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        make()


def test_values_at_the_limit_are_accepted() -> None:
    """EC2 accepts 16 KiB; a hook's heartbeat is sent every third of its time, in whole polls of 5 s."""
    hooks = LifecycleHooks("a", "b", heartbeat_timeout_s=15, ready_budget_s=1, drain_budget_s=1)
    assert (hooks.heartbeat_interval_s, replace(hooks, heartbeat_timeout_s=100).heartbeat_interval_s) == (5, 30)
    assert _host(data_path=None, mtu=8900).mtu == 8900
    empty = len(render_user_data(_host(environment={"VOICE_NOTE": ""})).encode())
    full = render_user_data(_host(environment={"VOICE_NOTE": "x" * (16_384 - empty)}))
    assert len(full.encode()) == 16_384
    with pytest.raises(ValueError, match="is 16385 bytes, but EC2 accepts only 16384"):
        render_user_data(_host(environment={"VOICE_NOTE": "x" * (16_385 - empty)}))


@pytest.mark.parametrize(
    ("changes", "required"),
    [
        ({"data_path": None, "ena_express": False}, False),
        ({"data_path": None, "mtu": 8900}, True),
        ({"ena_express": False}, True),
    ],
    ids=["neither", "ena-express", "af-xdp"],
)
def test_ethtool_is_installed_where_needed(changes: dict[str, object], required: bool) -> None:
    assert ("need ethtool ethtool" in render_user_data(_host(**changes))) == required


def test_container_defaults_add_no_option() -> None:
    bare = Container("engine", image("engine", "a"), {}, CommandReadinessCheck("true"))
    assert (bare.user_id, bare.uses_hardware, bare.shared_memory_mib, CommandReadinessCheck("true").interval_s) == (
        0,
        False,
        None,
        5,
    )
    assert Mount("/a", "/b").is_writable is False
    script = unpack_script(render_user_data(_host(containers=(bare,))))
    assert "memlock" not in script
    assert "hugepages:/dev/hugepages" not in script


def test_the_script_is_reproducible() -> None:
    assert render_user_data(hosts.vad()) == render_user_data(hosts.vad())
    other = replace(hosts.vad().containers[0], health=PortReadinessCheck(1))
    assert render_user_data(replace(hosts.vad(), containers=(other,))) != render_user_data(hosts.vad())
