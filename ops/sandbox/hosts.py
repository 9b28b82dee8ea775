"""`voice sandbox --hosts`: a deployment's hosts booted in virtual machines, from launch to termination."""

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

from rich.markup import escape
from rich.table import Table

from blueprint.aws import names
from blueprint.contract.images import Image
from blueprint.file.model.deployment import Deployment
from blueprint.hosts import VAD_IMAGES
from blueprint.images import CONTEXT, BuiltImage, specs
from ops.call.session import CallError
from ops.demo.command import WORST_ERROR_RATE
from ops.demo.services import ServiceError
from ops.findings import load_checked
from ops.images.rehearsal import rehearsal as image_rehearsal
from ops.output import empty_table, out
from ops.progress import Progress
from ops.sandbox.caller import Heard, Neighbours, speak
from sandbox.aws.claim import Claim
from sandbox.aws.rehearsal import Rehearsal
from sandbox.hosts.cloud import HELD, Cloud, Host
from sandbox.hosts.disk import CACHE, Disk, HostsError, disk
from sandbox.hosts.facts import vad_facts
from sandbox.hosts.network import namespace
from sandbox.hosts.rehearsal import balanced, detached, launch, terminate, wait_for_growth, with_digests
from sandbox.hosts.router import Router
from sandbox.hosts.servers import filling, push
from sandbox.hosts.timeline import timeline

MINUTES = 15
"""What this is to take on two idle cores, once root and images are there."""
LONG = 3
"""How often a caller says the sample, of 24 s, who is to fill a host for as long as the alarm of its fleet asks."""
_SHARED = ("blueprint/contract", "images/runtime", "images/bases.yaml", ".dockerignore")
"""What more than one image is built from."""


def rehearse_hosts(deployment: Deployment, progress: Progress) -> bool:
    """Take a VAD host of a deployment from launch to termination; return whether all that must hold holds.

    Raises:
        HostsError: A host does not come up, or a program of the surroundings fails; the text is the answer.
    """
    home = Path(mkdtemp(prefix="voice-hosts-"))
    begin = time.monotonic()
    passed = False
    try:
        with surroundings(deployment, home, progress) as cloud:
            passed = _life_of_a_vad_host(cloud, progress)
        out.print(f"  {(time.monotonic() - begin) / 60:.0f} minutes of {MINUTES}")
    except (CallError, ServiceError) as error:
        raise HostsError(str(error)) from None
    finally:
        if passed:
            rmtree(home)
        else:
            out.print(f"  consoles and logs are kept in {home}", soft_wrap=True)
    return passed


@contextmanager
def surroundings(deployment: Deployment, home: Path, progress: Progress) -> Iterator[Cloud]:
    """Make root and images where they are not there yet, deploy, and open what hosts need, all in a namespace.

    Args:
        home: Keeps the logs and the consoles of the machines.

    Raises:
        HostsError: Something cannot be made; the text is the answer.
    """
    with progress.phase("root file system of the machines"):
        root = disk()
    archives = {image: _archive(image, root, progress) for image in VAD_IMAGES}
    registry = home / "registry"
    with namespace():
        with progress.phase("push images"), filling(registry, home):
            digests = {image: push(archive, f"{deployment.name}/{image}") for image, archive in archives.items()}
        pinned = load_checked(with_digests(deployment.source.file, digests, home))
        with Rehearsal(pinned, real_hosts=True) as local:
            local.cdk.on_line = progress.detail
            with progress.phase("cdk deploy --all"):
                local.bootstrap()
                local.cdk.deploy()
            with Cloud(pinned, local.aws, disk=root, registry=registry, folder=home) as cloud:
                yield cloud


def _archive(image: Image, root: Disk, progress: Progress) -> Path:
    """Return an image as an archive; it is built when its sources have changed since the last time."""
    archive = CACHE / "images" / f"{image}-{_sources_hash(image)}.tar"
    if archive.exists():
        return archive
    spec = specs()[image]
    if not isinstance(spec, BuiltImage):
        raise HostsError(f"{image} has no Dockerfile here, and no registry is reached from here")
    archive.parent.mkdir(parents=True, exist_ok=True)
    making = archive.with_suffix(".making")
    with progress.phase(f"build the image {image}"), image_rehearsal(progress.detail) as stage:
        stage.export(stage.build(spec), making, root.authority.file)
    making.rename(archive)
    return archive


def _sources_hash(image: Image) -> str:
    """Return a hash of all that an image is built from, as git knows it."""
    command = ["git", "-C", str(CONTEXT), "ls-files", f"images/{image}", *_SHARED]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  git
    sources = hashlib.sha256()
    for path in sorted(listed.split()):
        if "/tests/" not in path:
            sources.update(path.encode() + (CONTEXT / path).read_bytes())
    return sources.hexdigest()[:16]


def _life_of_a_vad_host(cloud: Cloud, progress: Progress) -> bool:
    group = names.vad_groups(cloud.deployment)[0]
    host = cloud.boot(cloud.launched(group), group)
    claims: list[Claim] = []
    try:
        with closing(Router(cloud, host)) as router, Neighbours(cloud, cloud.folder) as neighbours:
            with progress.phase(f"launch {host.instance} of {group}"):
                launch(cloud, host)
            claims += vad_facts(cloud.deployment, host)
            claims += _calls(cloud, host, neighbours, router, progress)
    finally:
        out.print(_timeline_table(host))
        for claim in claims:
            out.print(f"  {'[green]✓[/]' if claim.holds else '[red]✗[/]'} {escape(claim.text)}", soft_wrap=True)
    return all(claim.holds for claim in claims)


def _calls(cloud: Cloud, host: Host, neighbours: Neighbours, router: Router, progress: Progress) -> Iterator[Claim]:
    """Make a call, and terminate the host while a second one runs."""
    with progress.phase("gateway and Whisper beside it"):
        gateway = neighbours.start()
    with progress.phase("the load balancer finds it healthy"):
        target = balanced(cloud, host)
    before = cloud.instances(host.group)
    with progress.phase("a call through it, for which its fleet grows"):
        host.machine.note("call")
        heard = asyncio.run(speak(gateway, meanwhile=lambda: wait_for_growth(cloud, host), times=LONG))
        host.machine.note("heard")
    yield _understood(heard)
    yield Claim(f"{target.passed_on} packets came through the load balancer", target.passed_on > 0)
    more = [state for instance, state in cloud.instances(host.group).items() if instance not in before]
    yield Claim(f"by its own metrics its fleet grows: {', '.join(more)}", more == [HELD])
    with progress.phase("a call through a network that loses packets"), router.on_the_way():
        heard = asyncio.run(speak(gateway))
    lost = router.lost()
    yield _understood(heard)
    yield Claim(f"netem lost {lost} of its packets", lost > 0)
    with progress.phase("terminate it in its group while a call runs"):
        # The load balancer moves the flows of a host that leaves, and has no other here: this caller sends past it.
        heard = asyncio.run(speak(gateway, meanwhile=lambda: terminate(cloud, host), to=host.address))
    yield _understood(heard)
    yield Claim("the load balancer has let go of it", cloud.balancer.target(host.address) is None)
    yield Claim("the XDP program is detached after the drain", detached(host))


def _understood(heard: Heard) -> Claim:
    text = f"a caller heard the first words after {heard.first_s:.1f} s, and {heard.words_wrong:.0%} of all wrong"
    return Claim(text, heard.words_wrong <= WORST_ERROR_RATE)


def _timeline_table(host: Host) -> Table:
    table = empty_table(f"{host.instance} of {host.group}, emulated", ["phase"], ["after s", "took s"])
    for phase in timeline(host.machine.lines):
        table.add_row(phase.name, f"{phase.begin_s:.0f}", f"{phase.took_s:.0f}")
    return table
