"""Builds and runs images based on a plain distribution on this machine, without a registry or container daemon.

The base is bootstrapped from Debian's archive, committed to a temporary image storage, and passed to the Dockerfile by
digest, as in a real build. Then the image's smoke test runs: ``images/<name>/smoke/run.sh`` in the image as its user,
or, for an image without test tools, ``smoke/drive.sh`` on this machine, which starts the image's program.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from voice_blueprint.images import BUILD_CONTEXT, BuiltImage, load_base_images
from voice_ops.images.smoke import create_smoke_test

MAX_OPEN_FILES = 20_000
"""Limit on open files in a container. The router needs 16,400. Buildah's default is 1,024, and containerd's is more
than a million."""
PACKAGE_BY_TOOL = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "ip": "iproute2", "redis-server": "redis-server",
         "espeak-ng": "espeak-ng"}  # fmt: skip
"""Debian package of each required program."""
MIRROR_URL = "http://deb.debian.org"
KEYRING_FILE = "/usr/share/keyrings/debian-archive-keyring.gpg"
APT_NO_CACHE_OPTIONS = 'APT::Keep-Downloaded-Packages "false"; Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";'
CERTIFICATES_FILE = Path("/etc/ssl/certs/ca-certificates.crt")
SMOKE_FOLDER = "smoke"
DRIVE_SCRIPT = "drive.sh"
LOOPBACK_ONLY_PREFIX = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Command prefix that runs a program in a separate network namespace, in which all ports are free and only loopback
works."""
ReportFunction = Callable[[str], None]


class RehearsalError(Exception):
    """An image could not be built or run. The message contains the reason."""


@dataclass(frozen=True)
class ImageResult:
    """Size of an image, and the durations of its build and its smoke test."""

    name: str
    size_gib: float
    budget_gib: float
    build_s: float
    smoke_s: float


def install_tools() -> None:
    """Install the missing tools with apt-get.

    Raises:
        RehearsalError: A missing tool cannot be installed.
    """
    if all(map(shutil.which, PACKAGE_BY_TOOL)):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise RehearsalError(
            f"root permissions and {', '.join(PACKAGE_BY_TOOL)} are required: run `apt-get install "
            f"{' '.join(PACKAGE_BY_TOOL.values())}`"
        )
    _run_command(["apt-get", "update", "-qq"])
    _run_command(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGE_BY_TOOL.values()])


def _run_command(command: list[str], timeout_s: float = 1800) -> str:
    """Run a command and return its output. Its stderr is only shown if the command fails."""
    try:
        # Fixed programs; their arguments come from typed specifications.
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise RehearsalError(f"`{' '.join(command[:2])}` did not exit within {timeout_s:.0f} s") from None
    if result.returncode:
        tail = "\n".join(line for text in (result.stdout, result.stderr) for line in text.splitlines()[-40:])
        raise RehearsalError(f"`{' '.join(command)}` failed with {result.returncode}:\n{tail}")
    return result.stdout.strip()


class Rehearsal:
    """A temporary image storage, in which images are built and run."""

    def __init__(self, folder: Path, report: ReportFunction) -> None:
        self._folder = folder
        self._report = report
        self._digests: dict[str, str] = {}

    def _run_buildah(self, command: str, *arguments: str, prefix: tuple[str, ...] = ()) -> str:
        storage = ["--root", f"{self._folder}/storage", "--runroot", f"{self._folder}/run", "--storage-driver", "vfs"]
        return _run_command([*prefix, "buildah", *storage, command, *arguments])

    def bootstrap_base(self, name: str) -> str:
        """Return the reference of a distribution's base with a digest. The first call bootstraps the base."""
        base = load_base_images()[name]
        local = f"localhost/{name}:{base.bootstrap}"
        if name not in self._digests:
            self._report(f"bootstrapping {local} from {MIRROR_URL}")
            self._bootstrap(base.bootstrap, local)
            self._digests[name] = self._run_buildah(
                "inspect", "--type", "image", "--format", "{{.FromImageDigest}}", local
            )
        return f"localhost/{name}@{self._digests[name]}"

    def _bootstrap(self, suite: str, reference: str) -> None:
        archive = f"{self._folder}/{suite}.tar"
        sources = [
            f"deb {MIRROR_URL}/debian {suite} main",
            f"deb {MIRROR_URL}/debian {suite}-updates main",
            f"deb {MIRROR_URL}/debian-security {suite}-security main",
        ]
        # As in debian:*-slim: required packages and apt, without documentation, and without apt's package cache.
        slim = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale", "info")]
        slim += ["--include=usr-is-merged", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]
        disable_cache = (
            f"echo '{APT_NO_CACHE_OPTIONS}' >$1/etc/apt/apt.conf.d/keep-nothing && rm -f $1/var/cache/apt/*.bin"
        )
        slim += [f"--customize-hook={disable_cache}"]
        _run_command(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--keyring={KEYRING_FILE}", *slim, suite, archive, *sources]
        )
        container = self._run_buildah("from", "scratch")
        self._run_buildah("add", "--quiet", container, archive, "/")
        self._run_buildah("commit", "--quiet", "--rm", container, reference)
        Path(archive).unlink()

    def build(self, spec: BuiltImage) -> str:
        """Build an image from its Dockerfile, and return the local reference."""
        arguments = {argument: self.bootstrap_base(name) for argument, name in spec.bases.items()}
        arguments |= spec.build_args | self._find_current_packages(spec)
        reference = f"localhost/voice/{spec.name}:rehearsal"
        options = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        # Networks that inspect TLS have their own certificate authority. In the build only, pip uses the host's
        # certificates.
        pip = self._folder / "pip.conf"
        pip.write_text("[global]\ncert = /run/host-certificates.crt\n", encoding="utf-8")
        mounts = [
            "--volume",
            f"{pip}:/etc/pip.conf:ro",
            "--volume",
            f"{CERTIFICATES_FILE}:/run/host-certificates.crt:ro",
        ]
        self._report(f"building {spec.name}")
        self._run_buildah(
            "bud", "--isolation", "chroot", "--pull-never", "--layers=false",
            *options, *(mounts if CERTIFICATES_FILE.exists() else []), "--tag", reference,
            "--file", f"{spec.folder}/Dockerfile", str(BUILD_CONTEXT),
        )  # fmt: skip
        return reference

    def _find_current_packages(self, spec: BuiltImage) -> dict[str, str]:
        """Return the current versions in Debian's archive that differ from the pinned ones.

        The archive removes a version when a fix replaces it. A release build then uses the snapshot
        (``images/debian.sh``); a rehearsal reports the newer version and builds with it, since it can only reach
        Debian's archive.
        """
        names = " ".join(package.name for package in spec.packages.values())
        script = f"apt-get update -qq && apt-cache madison {names}"
        with self._open_container(self.bootstrap_base(next(iter(spec.bases.values())))) as container:
            listing = self._run_buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", script)
        newest: dict[str, str] = {}
        for line in listing.splitlines():
            name, version, _ = (column.strip() for column in line.split("|"))
            newest.setdefault(name, version)
        current = {}
        for argument, package in spec.packages.items():
            result = newest.get(package.name, package.version)
            if result != package.version:
                self._report(
                    f"! {spec.name}: {argument} is {package.version}, but the current version in Debian is {result}"
                )
                current[argument] = result
        return current

    @contextmanager
    def _open_container(self, reference: str) -> Iterator[str]:
        container = self._run_buildah("from", "--pull-never", "--ulimit", f"nofile={MAX_OPEN_FILES}", reference)
        try:
            yield container
        finally:
            self._run_buildah("rm", container)

    def export(self, reference: str, archive: Path, authority: Path) -> None:
        """Write an image as an OCI archive, with an additional layer that adds a trusted certificate authority."""
        with self._open_container(reference) as container:
            self._run_buildah(
                "copy", "--quiet", container, str(authority), "/usr/local/share/ca-certificates/rehearsal.crt"
            )
            self._run_buildah("run", "--isolation", "chroot", "--user", "0", container, "--", "update-ca-certificates")
            # boto3 bundles CA certificates, and uses the system's only if configured.
            self._run_buildah("config", "--env", f"AWS_CA_BUNDLE={CERTIFICATES_FILE}", container)
            self._run_buildah("commit", "--quiet", container, f"oci-archive:{archive}")

    def measure_size_gib(self, reference: str) -> float:
        """Return the total size of an image's files."""
        with self._open_container(reference) as container:
            listing = _run_command(["du", "--summarize", "--bytes", self._run_buildah("mount", container)])
        return int(listing.split()[0]) / 2**30

    def run_smoke_test(self, spec: BuiltImage, reference: str) -> None:
        """Run an image's own smoke test, in the image or from outside."""
        self._report(f"running {spec.name}")
        if (spec.folder / SMOKE_FOLDER / DRIVE_SCRIPT).exists():
            self._run_smoke_test_on_machine(spec, reference)
        else:
            self._run_smoke_test_in_image(spec, reference)

    def _run_smoke_test_on_machine(self, spec: BuiltImage, reference: str) -> None:
        """Run the smoke test on this machine with the image's command and files."""
        config = json.loads(self._run_buildah("inspect", "--type", "image", reference))["OCIv1"]["config"]
        with self._open_container(reference) as container:
            root = self._run_buildah("mount", container)
            script = [f"{spec.folder}/{SMOKE_FOLDER}/{DRIVE_SCRIPT}", root, ",".join(spec.capabilities)]
            _run_command([*script, "env", *config["Env"], *config["Cmd"]])

    def _run_smoke_test_in_image(self, spec: BuiltImage, reference: str) -> None:
        """Run the smoke test in the image as its user, without network access except to a loopback interface."""
        plan = create_smoke_test(spec.name)
        folder = self._folder / f"{spec.name}-{SMOKE_FOLDER}"
        shutil.copytree(spec.folder / SMOKE_FOLDER, folder)
        (folder / "launch.json").write_text(json.dumps(plan.to_launch_document()), encoding="utf-8")
        mounts = {folder: f"/{SMOKE_FOLDER}"}
        for number, (path, text) in enumerate(plan.render_files().items()):
            mounts[self._folder / f"{spec.name}-{number}"] = path
            (self._folder / f"{spec.name}-{number}").write_text(text, encoding="utf-8")
        volumes = [
            word
            for host_path, container_path in mounts.items()
            for word in ("--volume", f"{host_path}:{container_path}:ro")
        ]
        script = ["--", "sh", f"/{SMOKE_FOLDER}/run.sh"]
        with self._open_container(reference) as container:
            self._run_buildah("run", "--isolation", "chroot", *volumes, container, *script, prefix=LOOPBACK_ONLY_PREFIX)


@contextmanager
def open_rehearsal(report: ReportFunction) -> Iterator[Rehearsal]:
    """Open a rehearsal, and delete the image storage at the end of the context."""
    install_tools()
    with TemporaryDirectory(prefix="voice-images-") as folder:
        yield Rehearsal(Path(folder), report)


def rehearse_image(spec: BuiltImage, stage: Rehearsal) -> ImageResult:
    """Build, measure and run an image.

    Raises:
        RehearsalError: The image does not build, is too large, or does not run.
    """
    begin = time.monotonic()
    reference = stage.build(spec)
    built_at = time.monotonic()
    size = stage.measure_size_gib(reference)
    if size > spec.size.budget_gib:
        raise RehearsalError(f"{spec.name} has {size:.2f} GiB, more than its limit of {spec.size.budget_gib} GiB")
    stage.run_smoke_test(spec, reference)
    return ImageResult(spec.name, size, spec.size.budget_gib, built_at - begin, time.monotonic() - built_at)
