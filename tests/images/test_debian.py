"""`images/debian.sh` installs pinned packages from the archive or its snapshot, tested with the real apt."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from voice_blueprint.images import IMAGES_FOLDER, BaseImage, BuiltImage, load_base_images, load_image_specs
from voice_ops.images import snapshots

SCRIPT = IMAGES_FOLDER / "debian.sh"
SUITE = "trixie"
SNAPSHOT = "20250131T000000Z"
EXPIRED = "Sat, 01 Feb 2025 00:00:00 UTC"
ARCHIVE, THEN = "deb.debian.org/debian", f"snapshot.debian.org/archive/debian/{SNAPSHOT}"

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt, which distributions of Debian have")


class Proxy(SimpleHTTPRequestHandler):
    """HTTP proxy for apt that serves both hosts from folders with their names."""

    def __init__(self, *args: object, requested: list[str], **kwargs: str) -> None:
        self._requested = requested
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        parts = urlsplit(path)
        self._requested.append(f"{parts.netloc}{parts.path}")
        return super().translate_path(f"/{parts.netloc}{parts.path}")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Debian:
    """A machine whose apt uses a local archive and a snapshot."""

    def __init__(self, folder: Path) -> None:
        self.root, self._www, self.requested = folder / "root", folder / "www", list[str]()
        for each in ("etc/apt/sources.list.d", "var/lib/dpkg", "var/lib/apt/lists/partial", "var/log/apt", "tmp"):
            (self.root / each).mkdir(parents=True)
        (self.root / "var/cache/apt/archives/partial").mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        (self.root / "etc/os-release").write_text(f"VERSION_CODENAME={SUITE}\n")
        self.sources = self.root / "etc/apt/sources.list.d/debian.sources"
        self.sources.write_text(f"Types: deb\nURIs: http://{ARCHIVE}\nSuites: {SUITE}\nComponents: main\n")
        for host in ("debian", "debian-security"):
            for suite in (SUITE, f"{SUITE}-updates", f"{SUITE}-security"):
                self._publish(THEN.replace("/debian/", f"/{host}/"), suite, {})
        handler = partial(Proxy, requested=self.requested, directory=str(self._www))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def publish(self, where: str, version: str) -> None:
        """Add two packages of a version, one of which depends on the other at that version, to an archive."""
        self._publish(where, SUITE, {"voice": f"voice-common (= {version})", "voice-common": ""}, version)

    def _publish(self, where: str, suite: str, packages: dict[str, str], version: str = "") -> None:
        archive = self._www / where
        lists: dict[str, str] = {"main/binary-amd64/Packages": "", "main/source/Sources": ""}
        for name, needs in packages.items():
            built = archive / f"pool/{name}_{version}_all.deb"
            content = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: nobody\nDescription: test\n"
            content += f"Depends: {needs}\n" if needs else ""
            made = self.root / f"tmp/{name}-{version}"
            (made / "DEBIAN").mkdir(parents=True, exist_ok=True)
            (made / "DEBIAN/control").write_text(content)
            built.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg-deb", "--build", "--root-owner-group", made, built], check=True, capture_output=True)  # noqa: S603, S607
            lists["main/binary-amd64/Packages"] += f"{content}{_file('Filename', built, archive)}\n"
            dsc = built.with_name(f"{name}_{version}.dsc")
            dsc.write_text(f"Format: 1.0\nSource: {name}\nVersion: {version}\n")
            lists["main/source/Sources"] += (
                f"Package: {name}\nBinary: {name}\nVersion: {version}\nDirectory: pool\nFormat: 1.0\n"
                f"Checksums-Sha256:\n {_sha256(dsc)} {dsc.stat().st_size} {dsc.name}\n\n"
            )
        dists = archive / "dists" / suite
        listed = ""
        for path, text in lists.items():
            (dists / path).parent.mkdir(parents=True, exist_ok=True)
            (dists / path).write_text(text)
            listed += f" {_sha256(dists / path)} {len(text)} {path}\n"
        valid = f"Valid-Until: {EXPIRED}\n" if where != ARCHIVE else ""
        (dists / "Release").write_text(
            f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nDate: {EXPIRED}\n{valid}"
            f"Architectures: amd64 all\nComponents: main\nSHA256:\n{listed}"
        )

    def run(self, *arguments: str, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
        """Run the script with an apt and a dpkg restricted to this machine."""
        options = {
            "Dir": self.root,
            "Dir::State::status": self.root / "var/lib/dpkg/status",
            "Dir::Bin::dpkg-source": "/bin/true",
            "Acquire::http::Proxy": f"http://127.0.0.1:{self.server.server_port}",
            # The local archive is not signed.
            "Acquire::AllowInsecureRepositories": "true",
            "APT::Get::AllowUnauthenticated": "true",
            "APT::Sandbox::User": "",
            "APT::Architecture": "amd64",
            "DPkg::Options::": f"--root={self.root}",
        }
        config = self.root / "apt.conf"
        text = [f'{key} "{value}";' for key, value in options.items()] + ['DPkg::Options:: "--force-not-root";']
        config.write_text("\n".join(text))
        environment = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C"}
        return subprocess.run(  # noqa: S603
            ["sh", script, SNAPSHOT, *arguments],  # noqa: S607
            check=False,
            capture_output=True,
            text=True,
            env=environment,
            cwd=self.root,
        )

    def installed(self) -> dict[str, str]:
        show = ["dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "--show", "-f", "${Package} ${Version}\n"]
        listed = subprocess.run(show, check=True, capture_output=True, text=True).stdout  # noqa: S603
        return dict(line.split() for line in listed.splitlines())


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _file(field: str, file: Path, archive: Path) -> str:
    return f"{field}: {file.relative_to(archive)}\nSize: {file.stat().st_size}\nSHA256: {_sha256(file)}\n"


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Debian]:
    machine = Debian(tmp_path)
    yield machine
    machine.server.shutdown()
    machine.server.server_close()


def test_packages_in_the_archive_are_only_installed_from_it(debian: Debian) -> None:
    debian.publish(ARCHIVE, "1.0")
    done = debian.run("voice=1.0")
    assert done.returncode == 0, done.stderr
    assert debian.installed() == {"voice": "1.0", "voice-common": "1.0"}
    assert not [path for path in debian.requested if path.startswith("snapshot")]


def test_replaced_packages_come_from_the_snapshot_with_their_dependencies(debian: Debian) -> None:
    before = debian.sources.read_text()
    debian.publish(ARCHIVE, "2.0")
    debian.publish(THEN, "1.0")
    done = debian.run("voice=1.0")
    assert done.returncode == 0, done.stderr
    assert f"taking those of {SNAPSHOT}" in done.stderr
    assert debian.installed() == {"voice": "1.0", "voice-common": "1.0"}
    assert (debian.sources.read_text(), [*debian.sources.parent.iterdir()]) == (before, [debian.sources])


@pytest.mark.parametrize("archive", [ARCHIVE, THEN])
def test_a_source_package_comes_from_the_same_archive_as_the_others(debian: Debian, archive: str) -> None:
    debian.publish(ARCHIVE, "2.0")
    debian.publish(archive, "1.0")
    done = debian.run("--source", "voice=1.0", "voice-common=1.0")
    assert done.returncode == 0, done.stderr
    assert debian.installed() == {"voice-common": "1.0"}
    assert f"{archive}/pool/voice_1.0.dsc" in debian.requested
    assert (debian.root / "voice_1.0.dsc").exists()


def test_a_replaced_source_package_moves_all_packages_to_the_snapshot(debian: Debian) -> None:
    debian.publish(ARCHIVE, "2.0")
    debian.publish(THEN, "1.0")
    done = debian.run("--source", "voice=2.0", "voice-common=1.0")
    assert done.returncode != 0
    assert "2.0" in done.stderr


def test_versions_in_neither_archive_nor_snapshot_end_the_build(debian: Debian) -> None:
    debian.publish(ARCHIVE, "2.0")
    debian.publish(THEN, "1.0")
    done = debian.run("voice=1.5")
    assert done.returncode != 0
    assert "1.5" in done.stderr
    assert debian.installed() == {}


def test_expired_package_lists_are_refused_without_the_option(debian: Debian, tmp_path: Path) -> None:
    """Control: without the script's option, the expired snapshot is refused."""
    debian.publish(ARCHIVE, "2.0")
    debian.publish(THEN, "1.0")
    script = tmp_path / "debian.sh"
    script.write_text(SCRIPT.read_text().replace("[check-valid-until=no] ", ""))
    script.chmod(0o755)
    done = debian.run("voice=1.0", script=script)
    assert done.returncode != 0
    assert "expired" in done.stderr


def lists(base: str) -> str:
    """Return lists in Debian's format with all packages that images on a base pin."""
    over = [
        spec for spec in load_image_specs().values() if isinstance(spec, BuiltImage) and base in spec.bases.values()
    ]
    return "\n".join(
        f"Package: {package.name}\nMaintainer: x\nVersion: {package.version}\n"
        for spec in over
        for package in spec.packages.values()
    )


@pytest.mark.parametrize("base", load_base_images().values(), ids=load_base_images())
def test_a_snapshot_is_recorded_while_the_archive_has_every_version(base: BaseImage) -> None:
    text = lists(base.name)
    assert list(snapshots.find_missing_versions(base, snapshots.parse_package_versions(text))) == []
    gone = re.sub(r"(?<=^Package: ca-certificates\nMaintainer: x\nVersion: ).*", "99", text, flags=re.MULTILINE)
    (line, *_) = snapshots.find_missing_versions(base, snapshots.parse_package_versions(gone))
    assert re.search(rf"CA_CERTIFICATES_VERSION is ca-certificates \S+, but {base.bootstrap} has 99: update", line)


def test_updating_a_snapshot_changes_no_other_line() -> None:
    text = snapshots.BASES_FILE.read_text(encoding="utf-8")
    changed = snapshots.replace_snapshot(text, load_base_images()["debian-bookworm"], "20991231T235959Z")
    differing = [pair for pair in zip(text.splitlines(), changed.splitlines(), strict=True) if pair[0] != pair[1]]
    assert differing == [
        (f"   snapshot: {load_base_images()['debian-bookworm'].snapshot},", "   snapshot: 20991231T235959Z,")
    ]
