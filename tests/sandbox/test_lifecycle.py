"""Start, stop and cleanup of local AWS processes."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

import voice_blueprint
from tests.blueprint.documents import Edits, edit_document, load_text
from tests.isolation import unshare
from voice_blueprint.shipped import ROOT
from voice_ops.synthesis import synthesize
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.cdk import Cdk, CdkError

DEPLOYMENT = voice_blueprint.load(ROOT / "tests/deployments/sandbox.yaml")
PATIENCE_S = 120
"""Timeout for operations that take seconds on an idle machine."""

pytestmark = pytest.mark.sandbox


def alive(pid: int) -> bool:
    try:
        # A zombie counts as exited, since this process has not waited for it yet.
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.05)


def test_two_sandboxes_are_isolated() -> None:
    with Rehearsal(DEPLOYMENT) as one, Rehearsal(DEPLOYMENT) as other:
        assert one.aws.endpoint != other.aws.endpoint
        assert one.home != other.home
        one.session.client("sns", endpoint_url=one.aws.endpoint).create_topic(Name="only-here")
        topics = other.session.client("sns", endpoint_url=other.aws.endpoint).list_topics()["Topics"]
        assert topics == []


def test_no_process_or_file_remains_after_an_error() -> None:
    class Planned(Exception):  # noqa: N818  no error, a plan
        pass

    with pytest.raises(Planned), Rehearsal(DEPLOYMENT) as rehearsal:  # noqa: PT012
        pid, home = rehearsal.aws.pid, rehearsal.home
        raise Planned
    wait_until_dead(pid)
    assert not home.exists()


def test_a_killed_local_aws_is_cleaned_up_and_prints_a_remedy() -> None:
    gone = pytest.raises(CdkError, match=r"exit code -9.*run the command again")
    with gone, Rehearsal(DEPLOYMENT) as rehearsal:
        os.kill(rehearsal.aws.pid, signal.SIGKILL)
        rehearsal.cdk.bootstrap()
    assert not rehearsal.home.exists()
    with Rehearsal(DEPLOYMENT) as again:
        assert again.count_resources() == {}


@pytest.mark.nightly
def test_a_local_aws_killed_during_a_deploy_restarts_with_the_same_command() -> None:
    def kill(line: str) -> None:
        if line.endswith("sandbox-network"):
            os.kill(rehearsal.aws.pid, signal.SIGKILL)

    gone = pytest.raises(CdkError, match=r"exit code -9.*run the command again")
    with gone, Rehearsal(DEPLOYMENT) as rehearsal:
        rehearsal.bootstrap()
        rehearsal.cdk.use_assembly(Path(synthesize(DEPLOYMENT, rehearsal.home / "cdk.out").directory))
        rehearsal.cdk.on_line = kill
        rehearsal.cdk.deploy()
    assert not rehearsal.home.exists()
    with Rehearsal(DEPLOYMENT) as again:
        again.bootstrap()
        again.cdk.deploy()
        assert all(claim.passed for claim in again.verify())
        again.cdk.destroy()
        assert again.count_remaining_resources() == {"role": 1}


@pytest.mark.nightly
def test_two_regions_of_one_file_are_deployed_and_destroyed_in_one_account(tmp_path: Path) -> None:
    west = {"region": "us-west-2", "availability_zones": ["us-west-2a"]}
    edits: Edits = {"environment": "sandbox", "aws.other_regions": [west]}
    deployment = load_text(
        edit_document(edits, (ROOT / "tests/deployments/small.yaml").read_text(encoding="utf-8")), tmp_path
    )
    with Rehearsal(deployment) as rehearsal:
        rehearsal.bootstrap()
        rehearsal.cdk.deploy()
        stacks = set(rehearsal.count_resources())
        assert {f"small-us-west-2-{name.removeprefix('small-')}" for name in stacks if "us-west-2" not in name} < stacks
        assert [claim.text for claim in rehearsal.verify() if not claim.passed] == []
        assert all(outcome.passed for outcome in rehearsal.run_drills())
        rehearsal.cdk.destroy()
        assert rehearsal.count_remaining_resources() == {"role": 2}


@pytest.mark.nightly
def test_concurrent_deploys_create_one_stack_and_report_the_conflict() -> None:
    """The first deployment succeeds; the second has no changes or reports the conflict."""
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
        rehearsal.cdk.use_assembly(assembly)
        other = Cdk(rehearsal.aws, DEPLOYMENT, rehearsal.home / "other")
        other.use_assembly(assembly)
        rehearsal.cdk.on_line = lambda line: began.set() if "deploying..." in line else None
        second = threading.Thread(target=deploy, args=(other,))
        second.start()
        rehearsal.cdk.deploy_only(network)
        second.join(PATIENCE_S)
        assert all("_IN_PROGRESS" in each or "already exists" in each for each in said), said
        rehearsal.cdk.deploy_only(network)
        assert list(rehearsal.count_resources()) == [network]
        rehearsal.cdk.destroy()
        assert not rehearsal.count_remaining_resources()


def test_a_full_disk_is_reported_with_a_remedy_and_cleaned_up() -> None:
    """A tmpfs in a separate mount namespace, which Python considers writable until the first write."""
    script = (
        f"mount -t tmpfs -o size=24k none /mnt; TMPDIR=/mnt {shlex.quote(sys.executable)} -c "
        "'from voice_ops.main import main; main()' sandbox deployments/sandbox.yaml; code=$?; ls -A /mnt; exit $code"
    )
    done = subprocess.run(  # noqa: S603
        [*unshare("--mount"), "bash", "-c", script],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "✗ cdk" in done.stderr
    assert "no space left on the disk of /mnt" in done.stderr
    assert "set TMPDIR to a folder with more space, and run the command again" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("✗ "), "the folder is empty again"


def test_a_kept_sandbox_still_serves_after_its_parent_exits() -> None:
    program = (
        "import voice_blueprint, sys\n"
        "from voice_sandbox.rehearsals.aws import Rehearsal\n"
        f"with Rehearsal(voice_blueprint.load({str(ROOT / 'tests/deployments/sandbox.yaml')!r})) as rehearsal:\n"
        "    rehearsal.keep_running()\n"
        "    print(rehearsal.aws.pid, rehearsal.home, rehearsal.build_tool_environment()['AWS_ENDPOINT_URL'])\n"
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


def start_rehearsal(folder: Path) -> subprocess.Popen[str]:
    """Start `voice sandbox` with its temporary files in a folder."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    # Shells start background jobs, possibly including this test, with SIGINT ignored, which children inherit.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from voice_ops.main import main; main()"
    )
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", program, "sandbox", "deployments/sandbox.yaml"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(os.killpg, id="from a terminal"),
        pytest.param(os.kill, id="to voice alone", marks=pytest.mark.nightly),
    ],
)
def test_ctrl_c_stops_and_removes_everything(send: Callable[[int, int], None], tmp_path: Path) -> None:
    voice = start_rehearsal(tmp_path)
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


def test_ctrl_c_while_the_local_aws_starts_removes_everything(tmp_path: Path) -> None:
    voice = start_rehearsal(tmp_path)
    while not list(tmp_path.glob("voice-sandbox-*")):
        assert voice.poll() is None
        time.sleep(0.01)
    os.killpg(voice.pid, signal.SIGINT)
    _, errors = voice.communicate(timeout=PATIENCE_S)
    assert (voice.returncode, errors.strip()) == (130, "✗ interrupted: the local AWS and its files are gone")
    assert not list(tmp_path.glob("voice-sandbox-*"))


def test_a_local_aws_that_does_not_start_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CdkError, match=r"the local AWS did not start \(exit code 1\)"):
        Rehearsal(DEPLOYMENT)
    assert not list(tmp_path.iterdir())


def _servers(parent: int) -> list[int]:
    """Return the local AWS processes that a process has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [
        int(child) for child in children if b"voice_sandbox.aws.server" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
