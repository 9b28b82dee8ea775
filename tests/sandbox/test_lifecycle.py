"""Starting, stopping and keeping local AWSs."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

import blueprint
from sandbox.aws.cdk import ROOT, CdkError
from sandbox.aws.rehearsal import Rehearsal

DEPLOYMENT = blueprint.load(ROOT / "deployments/sandbox.yaml")
PATIENCE_S = 120
"""Longest that a test waits for what takes seconds on an idle machine."""

pytestmark = pytest.mark.sandbox


def alive(pid: int) -> bool:
    try:
        # A zombie is as good as gone: its parent, this process, has yet to ask.
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


def test_two_sandboxes_do_not_see_each_other() -> None:
    with Rehearsal(DEPLOYMENT) as one, Rehearsal(DEPLOYMENT) as other:
        assert one.aws.endpoint != other.aws.endpoint
        assert one.home != other.home
        one.session.client("sns", endpoint_url=one.aws.endpoint).create_topic(Name="only-here")
        topics = other.session.client("sns", endpoint_url=other.aws.endpoint).list_topics()["Topics"]
        assert topics == []


def test_nothing_is_left_after_an_error() -> None:
    class Planned(Exception):  # noqa: N818  no error, a plan
        pass

    with pytest.raises(Planned), Rehearsal(DEPLOYMENT) as rehearsal:  # noqa: PT012
        pid, home = rehearsal.aws.pid, rehearsal.home
        raise Planned
    wait_until_dead(pid)
    assert not home.exists()


def test_a_local_aws_that_is_killed_leaves_nothing_and_says_what_to_do() -> None:
    gone = pytest.raises(CdkError, match=r"exit code -9.*run the command again")
    with gone, Rehearsal(DEPLOYMENT) as rehearsal:
        os.kill(rehearsal.aws.pid, signal.SIGKILL)
        rehearsal.cdk.bootstrap()
    assert not rehearsal.home.exists()
    with Rehearsal(DEPLOYMENT) as again:
        assert again.stacks() == {}


def test_a_kept_sandbox_outlives_its_parent_and_answers() -> None:
    program = (
        "import blueprint, sys\n"
        "from sandbox.aws.rehearsal import Rehearsal\n"
        f"with Rehearsal(blueprint.load({str(ROOT / 'deployments/sandbox.yaml')!r})) as rehearsal:\n"
        "    rehearsal.keep()\n"
        "    print(rehearsal.aws.pid, rehearsal.home, rehearsal.access()['AWS_ENDPOINT_URL'])\n"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    pid, home, endpoint = done.stdout.split()
    try:
        session = boto3.Session("key", "secret", region_name="us-east-1")
        assert session.client("sts", endpoint_url=endpoint).get_caller_identity()["Account"] == "123456789012"
        assert Path(home).is_dir()
    finally:
        os.kill(int(pid), signal.SIGTERM)
        shutil.rmtree(home)
    wait_until_dead(int(pid))


@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["from a terminal", "to voice alone"])
def test_ctrl_c_stops_and_removes_everything(send: Callable[[int, int], None], tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    # A shell starts background jobs, and so perhaps this test, with SIGINT ignored, and children inherit that.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from ops.cli import main; main()"
    )
    voice = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", program, "sandbox", "deployments/sandbox.yaml"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert voice.stdout is not None
    assert "bootstrap" in voice.stdout.readline()
    servers = _servers(voice.pid)
    assert servers
    send(voice.pid, signal.SIGINT)
    _, errors = voice.communicate(timeout=PATIENCE_S)
    assert voice.returncode == 130, errors
    assert errors.strip() == "✗ interrupted: the local AWS and its files are gone"
    for pid in servers:
        wait_until_dead(pid)
    assert not list(tmp_path.glob("voice-sandbox-*"))


def _servers(parent: int) -> list[int]:
    """Return the local AWSs that a process has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if b"sandbox.aws.server" in Path(f"/proc/{child}/cmdline").read_bytes()]
