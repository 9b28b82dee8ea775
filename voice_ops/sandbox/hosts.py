"""`voice sandbox --hosts`: boot a deployment's hosts in virtual machines, from launch to termination."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from rich.table import Table

from voice_blueprint.aws import names
from voice_blueprint.contract.images import Image
from voice_blueprint.file.model.deployment import Deployment
from voice_blueprint.hosts import VAD_IMAGES
from voice_blueprint.images import BUILD_CONTEXT, BuiltImage, load_image_specs
from voice_ops.call.session import CallError
from voice_ops.demo.command import MAX_WORD_ERROR_RATE
from voice_ops.demo.services import Gateway, ServiceError
from voice_ops.findings import load_checked_deployment
from voice_ops.images.rehearsal import open_rehearsal as image_rehearsal
from voice_ops.output import create_table, format_markup, out
from voice_ops.progress import Progress
from voice_ops.sandbox.caller import CallQuality, PeerServices, transcribe_call
from voice_sandbox.hosts.acceleration import KVM, detect_accelerator
from voice_sandbox.hosts.cloud import LAUNCH_WAIT_STATE, Host, SimulatedCloud
from voice_sandbox.hosts.disk import CACHE_FOLDER, Disk, HostRehearsalError, prepare_disk
from voice_sandbox.hosts.facts import verify_vad_host
from voice_sandbox.hosts.network import CALLER_ADDRESSES, enter_isolated_namespace
from voice_sandbox.hosts.rehearsal import (
    is_xdp_detached,
    terminate_host,
    wait_for_scale_out,
    wait_until_in_service,
    wait_until_target_healthy,
    write_pinned_deployment,
)
from voice_sandbox.hosts.router import Router
from voice_sandbox.hosts.servers import push_archive, run_registry_for_pushes
from voice_sandbox.hosts.timeline import parse_phases
from voice_sandbox.rehearsals.aws import Rehearsal
from voice_sandbox.rehearsals.claim import VerificationResult

EXPECTED_DURATION_MINUTES = 15
"""Expected duration on two idle cores, if the root file system and the images exist."""
LONG_CALL_REPEATS = 3
"""Number of times that a caller streams the sample of 24 s. The load must last until the fleet's alarm fires."""
_SHARED_SOURCES = (
    "voice_blueprint/contract",
    "images/runtime",
    "images/bases.yaml",
    "images/debian.sh",
    ".dockerignore",
)
"""Source paths on which all of these images depend."""


def rehearse_hosts(deployment: Deployment, progress: Progress) -> bool:
    """Run a VAD host of a deployment from launch to termination. Return True if all checks passed.

    Raises:
        HostRehearsalError: A host does not start, or a program that the host depends on fails.
    """
    home = Path(mkdtemp(prefix="voice-hosts-"))
    begin = time.monotonic()
    passed = False
    try:
        with deploy_host_environment(deployment, home, progress) as cloud:
            passed = _rehearse_vad_host(cloud, progress)
        out.print(f"  {(time.monotonic() - begin) / 60:.0f} minutes of {EXPECTED_DURATION_MINUTES}")
    except (CallError, ServiceError) as error:
        raise HostRehearsalError(str(error)) from None
    finally:
        if passed:
            rmtree(home)
        else:
            out.print(f"  consoles and logs are kept in {home}", soft_wrap=True)
    return passed


@contextmanager
def deploy_host_environment(deployment: Deployment, home: Path, progress: Progress) -> Iterator[SimulatedCloud]:
    """Deploy to the local AWS, and yield the cloud services that hosts need, in one network namespace.

    Missing root file systems and images are built first.

    Args:
        home: Folder for the logs and consoles of the machines.

    Raises:
        HostRehearsalError: A file system, an image or a service cannot be created.
    """
    with progress.phase("root file system of the machines"):
        root = prepare_disk()
    archives = {image: _build_archive(image, root, progress) for image in VAD_IMAGES}
    registry = home / "registry"
    with enter_isolated_namespace():
        with progress.phase("push images"), run_registry_for_pushes(registry, home):
            digests = {
                image: push_archive(archive, f"{deployment.name}/{image}") for image, archive in archives.items()
            }
        pinned = load_checked_deployment(write_pinned_deployment(deployment.source.file, digests, home))
        with Rehearsal(pinned, real_hosts=True) as local:
            local.cdk.on_line = progress.show_detail
            with progress.phase("cdk deploy --all"):
                local.bootstrap()
                local.cdk.deploy()
            with SimulatedCloud(pinned, local.aws, disk=root, registry=registry, folder=home) as cloud:
                yield cloud


def _build_archive(image: Image, root: Disk, progress: Progress) -> Path:
    """Return the archive of an image. Build the image if its sources have changed since the last build."""
    archive = CACHE_FOLDER / "images" / f"{image}-{_hash_sources(image)}.tar"
    if archive.exists():
        return archive
    spec = load_image_specs()[image]
    if not isinstance(spec, BuiltImage):
        raise HostRehearsalError(f"{image} has no Dockerfile here, and no registry is reachable")
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial_archive = archive.with_suffix(".making")
    with progress.phase(f"build the image {image}"), image_rehearsal(progress.show_detail) as stage:
        stage.export(stage.build(spec), partial_archive, root.authority.file)
    partial_archive.rename(archive)
    return archive


def _hash_sources(image: Image) -> str:
    """Return a hash of all sources of an image that git tracks."""
    command = ["git", "-C", str(BUILD_CONTEXT), "ls-files", f"images/{image}", *_SHARED_SOURCES]
    tracked_files = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  fixed git command
    sources = hashlib.sha256()
    for path in sorted(tracked_files.split()):
        if "/tests/" not in path:
            sources.update(path.encode() + (BUILD_CONTEXT / path).read_bytes())
    return sources.hexdigest()[:16]


def _rehearse_vad_host(cloud: SimulatedCloud, progress: Progress) -> bool:
    group = names.list_vad_group_names(cloud.deployment)[0]
    host = cloud.boot(cloud.find_or_launch_instance(group), group)
    claims: list[VerificationResult] = []
    try:
        with closing(Router(cloud, host)) as router, PeerServices(cloud, cloud.folder) as peers:
            with progress.phase(f"launch {host.instance} of {group}"):
                wait_until_in_service(cloud, host)
            claims += verify_vad_host(cloud.deployment, host)
            claims += _make_calls(cloud, host, peers, router, progress)
    finally:
        out.print(_create_timeline_table(host, detect_accelerator(cloud.disk.kernel)))
        for claim in claims:
            out.print(
                format_markup(f"  {'[green]✓[/]' if claim.passed else '[red]✗[/]'} {{}}", claim.text), soft_wrap=True
            )
    return all(claim.passed for claim in claims)


def _make_calls(
    cloud: SimulatedCloud, host: Host, peers: PeerServices, router: Router, progress: Progress
) -> Iterator[VerificationResult]:
    """Make calls through the host, terminate the host during the last call, and yield the checks."""
    with progress.phase("gateway and Whisper next to it"):
        gateway = peers.start()
    with progress.phase("its target is healthy"):
        target = wait_until_target_healthy(cloud, host)
    before = cloud.list_instance_states(host.group)
    with progress.phase("a call through it, for which its fleet grows"):
        host.machine.add_note("call")
        call = asyncio.run(
            transcribe_call(gateway, during_stream=lambda: wait_for_scale_out(cloud, host), times=LONG_CALL_REPEATS)
        )
        host.machine.add_note("heard")
    yield _create_transcript_claim(call)
    yield VerificationResult(
        f"{target.forwarded_packet_count} packets came through the load balancer", target.forwarded_packet_count > 0
    )
    new_instances = {
        instance: state for instance, state in cloud.list_instance_states(host.group).items() if instance not in before
    }
    yield VerificationResult(
        f"the fleet's metrics trigger a scale-out: {', '.join(new_instances.values())}",
        [*new_instances.values()] == [LAUNCH_WAIT_STATE],
    )
    with progress.phase("a call through a network that loses packets"), router.impair_traffic():
        call = asyncio.run(transcribe_call(gateway))
    lost_packets = router.count_lost_packets()
    yield _create_transcript_claim(call)
    yield VerificationResult(f"netem lost {lost_packets} of its packets", lost_packets > 0)
    if new_instances and detect_accelerator(cloud.disk.kernel) == KVM:
        yield from _call_across_hosts(cloud, host, cloud.boot(min(new_instances), host.group), gateway, progress)
    else:
        out.print("  one host alone: emulated, two take longer than a rehearsal is worth")
    with progress.phase("terminate it in its group while a call runs"):
        # The load balancer moves the flows of a terminating host, so this caller bypasses the load balancer.
        call = asyncio.run(
            transcribe_call(gateway, during_stream=lambda: terminate_host(cloud, host), target_address=host.address)
        )
    yield _create_transcript_claim(call)
    yield VerificationResult("the load balancer has deregistered it", cloud.balancer.find_target(host.address) is None)
    yield VerificationResult("the XDP program is detached after the drain", is_xdp_detached(host))


def _call_across_hosts(
    cloud: SimulatedCloud, host: Host, other: Host, gateway: Gateway, progress: Progress
) -> Iterator[VerificationResult]:
    """Launch a second host, and make calls whose source port or address changes during the call."""
    with progress.phase(f"launch {other.instance} of {other.group}"):
        wait_until_in_service(cloud, other)
        targets = [wait_until_target_healthy(cloud, each) for each in (host, other)]
    for change, sources in (
        ("port", CALLER_ADDRESSES[:1] * 2),
        ("address", _find_address_per_host(cloud, host, other)),
    ):
        before = [target.forwarded_packet_count for target in targets]
        with progress.phase(f"a call whose source {change} changes"):
            call = asyncio.run(transcribe_call(gateway, sources=sources))
        yield _create_transcript_claim(call)
        forwarded_packets = [
            target.forwarded_packet_count - earlier for target, earlier in zip(targets, before, strict=True)
        ]
        hosts = sum(count > 0 for count in forwarded_packets)
        text = f"its new {change}: packets per host {', '.join(map(str, forwarded_packets))}"
        yield VerificationResult(text, hosts == (1 if change == "port" else 2))


def _find_address_per_host(cloud: SimulatedCloud, host: Host, other: Host) -> list[str]:
    """Return, for each of two hosts, the address of a caller whose flow the load balancer sends to that host."""
    addresses = {cloud.balancer.choose_target((caller, 0)): caller for caller in CALLER_ADDRESSES}
    return [addresses[each.address] for each in (host, other) if each.address in addresses]


def _create_transcript_claim(call: CallQuality) -> VerificationResult:
    latency_s = call.first_words_latency_s
    text = f"a caller received the first words after {latency_s:.1f} s, and {call.word_error_rate:.0%} of all wrong"
    return VerificationResult(text, call.word_error_rate <= MAX_WORD_ERROR_RATE)


def _create_timeline_table(host: Host, accelerator: str) -> Table:
    table = create_table(f"{host.instance} of {host.group}, QEMU with {accelerator}", ["phase"], ["after s", "took s"])
    for phase in parse_phases(host.machine.console_lines):
        table.add_row(phase.name, f"{phase.start_s:.0f}", f"{phase.duration_s:.0f}")
    return table
