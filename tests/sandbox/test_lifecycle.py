"""Starting, stopping and keeping local AWSs."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

import blueprint
from ops.synthesis import synthesize
from sandbox.aws.cdk import ROOT, Cdk, CdkError
from sandbox.aws.rehearsal import Rehearsal
from tests.blueprint.documents import Edits, edited, load_text

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


@pytest.mark.nightly
def test_a_local_aws_that_is_killed_in_mid_deploy_starts_anew_with_the_same_command() -> None:
    def kill(line: str) -> None:
        if line.endswith("sandbox-network"):
            os.kill(rehearsal.aws.pid, signal.SIGKILL)

    gone = pytest.raises(CdkError, match=r"exit code -9.*run the command again")
    with gone, Rehearsal(DEPLOYMENT) as rehearsal:
        rehearsal.bootstrap()
        rehearsal.cdk.take(Path(synthesize(DEPLOYMENT, rehearsal.home / "cdk.out").directory))
        rehearsal.cdk.on_line = kill
        rehearsal.cdk.deploy()
    assert not rehearsal.home.exists()
    with Rehearsal(DEPLOYMENT) as again:
        again.bootstrap()
        again.cdk.deploy()
        assert all(claim.holds for claim in again.claims())
        again.cdk.destroy()
        assert not again.left()


@pytest.mark.nightly
def test_two_regions_of_one_file_come_up_in_one_account_and_go(tmp_path: Path) -> None:
    west = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
    edits: Edits = {"environment": "sandbox", "aws.other_regions": [west]}
    deployment = load_text(edited(edits, (ROOT / "deployments/small.yaml").read_text(encoding="utf-8")), tmp_path)
    with Rehearsal(deployment) as rehearsal:
        rehearsal.bootstrap()
        rehearsal.cdk.deploy()
        stacks = set(rehearsal.stacks())
        assert {f"small-us-west-2-{name.removeprefix('small-')}" for name in stacks if "us-west-2" not in name} < stacks
        assert [claim.text for claim in rehearsal.claims() if not claim.holds] == []
        assert all(outcome.passed for outcome in rehearsal.drill())
        rehearsal.cdk.destroy()
        assert not rehearsal.left()


@pytest.mark.nightly
def test_two_deploys_at_once_leave_one_stack_and_say_so() -> None:
    """Whichever comes first is done; the other one has nothing to change, or is told to wait."""
    network = "sandbox-network"
    said: list[str] = []
    began = threading.Event()

    def deploy(cdk: Cdk) -> None:
        began.wait(PATIENCE_S)
        try:
            cdk.deploy_only(network)
        except CdkError as error:
            said.append(str(error))

    with Rehearsal(DEPLOYMENT) as rehearsal:
        rehearsal.bootstrap()
        assembly = Path(synthesize(DEPLOYMENT, rehearsal.home / "cdk.out").directory)
        rehearsal.cdk.take(assembly)
        other = Cdk(rehearsal.aws, DEPLOYMENT, rehearsal.home / "other")
        other.take(assembly)
        rehearsal.cdk.on_line = lambda line: began.set() if "deploying..." in line else None
        second = threading.Thread(target=deploy, args=(other,))
        second.start()
        rehearsal.cdk.deploy_only(network)
        second.join(PATIENCE_S)
        assert all("_IN_PROGRESS" in each or "already exists" in each for each in said), said
        rehearsal.cdk.deploy_only(network)
        assert list(rehearsal.stacks()) == [network]
        rehearsal.cdk.destroy()
        assert not rehearsal.left()


def test_a_full_disk_is_told_with_what_to_do_and_nothing_is_left() -> None:
    """A tmpfs in a mount namespace of its own; as long as nothing is written, Python takes it for a good place."""
    script = (
        f"mount -t tmpfs -o size=24k none /mnt; TMPDIR=/mnt {sys.executable} -c "
        "'from ops.cli import main; main()' sandbox deployments/sandbox.yaml; code=$?; ls -A /mnt; exit $code"
    )
    done = subprocess.run(  # noqa: S603
        ["unshare", "--map-root-user", "--mount", "bash", "-c", script],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "✗ cdk" in done.stderr
    assert "no space is left on the disk of /mnt" in done.stderr
    assert "set TMPDIR to a folder that has more, and run the command again" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("✗ "), "the folder is empty again"


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


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(os.killpg, id="from a terminal"),
        pytest.param(os.kill, id="to voice alone", marks=pytest.mark.nightly),
    ],
)
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
