"""If packages cannot be installed, `make test` lists them and skips only tests that need them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import left_out
from tests.router.conftest import unpack

INSTALL = Path(__file__).parents[1] / "images/vad-dataplane/tests/install.sh"
LIST = Path(__file__).with_name("packages.txt")


def test_every_package_of_the_list_has_a_program_or_a_library() -> None:
    assert set(LIST.read_text().split()) == {*left_out.PROGRAMS, *left_out.LIBRARIES}


FAILURES = [
    ("FileNotFoundError: [Errno 2] No such file or directory: 'skopeo'", "skopeo"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/usr/bin/skopeo'", "skopeo"),
    ("bash: line 1: ethtool: command not found", "ethtool"),
    ("sh: 1: ethtool: not found", "ethtool"),
    ("AssertionError: needs Debian's valkey-server or redis-server: `make test` installs it", "redis-server"),
    ("Exception: Could not find Opus library. Make sure it is installed.", "libopus0"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/tmp/x/skopeo.json'", None),
    ("AssertionError: assert 'skopeo' in 'nothing'", None),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'docker-registry'", None),
]


@pytest.mark.parametrize(("failure", "package"), FAILURES)
def test_a_failure_is_skipped_only_for_a_listed_package(
    failure: str, package: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(left_out, "find_library", lambda _: None)
    monkeypatch.setenv(left_out.MISSING_PACKAGES_VARIABLE, "skopeo ethtool redis-server libopus0")
    assert left_out.missing_package(failure) == package
    monkeypatch.delenv(left_out.MISSING_PACKAGES_VARIABLE)
    assert left_out.missing_package(failure) is None, "where everything could be installed, a failure is a failure"


def test_an_installed_program_does_not_excuse_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(left_out.MISSING_PACKAGES_VARIABLE, "skopeo")
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    assert left_out.missing_package("No such file or directory: 'skopeo'") is None


def test_an_image_test_is_skipped_like_any_other() -> None:
    """Image tests are in a separate folder with its own `conftest.py`."""
    test = "images/runtime/tests/test_store.py::test_a_program_reads_its_password_file_at_each_login"
    environment = {"PATH": str(Path(sys.executable).parent), left_out.MISSING_PACKAGES_VARIABLE: "redis-server"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        cwd=INSTALL.parents[3], env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert "needs Debian's redis-server" in done.stdout


def test_a_file_or_a_command_with_a_missing_package_is_skipped(tmp_path: Path) -> None:
    """A file that imports from it is skipped too; with an incomplete module it would fail for another reason."""
    for name, text in {
        "conftest": "from tests.left_out import pytest_make_collect_report, pytest_runtest_makereport",
        "test_first": "import subprocess\nsubprocess.run(['skopeo'])\ndef helper(): ...",
        "test_second": "from test_first import helper\ndef test_helper(): helper()",
        "test_third": "def test_other(): ...",
        "test_fourth": "import subprocess\ndef test_command():\n"
        "    subprocess.run(['sh', '-c', 'skopeo; exit 3'], check=True, capture_output=True, text=True)",
    }.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "sh").symlink_to("/bin/sh")
    environment = {"PATH": f"{Path(sys.executable).parent}:{tmp_path}", left_out.MISSING_PACKAGES_VARIABLE: "skopeo"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", tmp_path],
        cwd=INSTALL.parents[3], env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed, 3 skipped" in done.stdout
    assert done.stdout.count("needs Debian's skopeo") == 3


def test_a_package_is_missing_unless_it_is_installed(tmp_path: Path) -> None:
    """dpkg also lists removed packages with remaining configuration, and suggested packages."""
    (tmp_path / "updates").mkdir()
    about = "Version: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a\n"
    (tmp_path / "status").write_text(
        f"Package: here\nStatus: install ok installed\n{about}Suggests: suggested\n\n"
        f"Package: removed\nStatus: deinstall ok config-files\n{about}\n"
    )
    programs, packages = tmp_path / "bin", tmp_path / "list"
    programs.mkdir()
    for name in ("cat", "dpkg-query"):
        (programs / name).symlink_to(shutil.which(name) or "/bin/false")
    packages.write_text("here\nremoved\nsuggested\nunknown\n")
    done = subprocess.run(  # noqa: S603
        ["/bin/bash", INSTALL, "--if-possible", packages],
        env={"PATH": str(programs), "DPKG_ADMINDIR": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "removed suggested unknown\n"), done.stderr


def test_programs_of_installed_packages_are_in_the_path() -> None:
    """Debian's users have no ``/usr/sbin`` in theirs."""
    command = ["make", "--no-print-directory", "--eval=path: ; @echo $$PATH", "path"]
    done = subprocess.run(  # noqa: S603
        command, cwd=INSTALL.parents[3], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert "/usr/sbin" in done.stdout.strip().split(":")


@pytest.mark.parametrize("tools", [("dpkg-query",), ("dpkg-query", "apt-get"), ()])
def test_uninstallable_packages_are_reported(tools: tuple[str, ...]) -> None:
    """Covers machines without apt, with apt but neither root nor sudo, and with another distribution."""
    with TemporaryDirectory() as folder:  # one that another user may read, unlike pytest's
        Path(folder).chmod(0o755)
        _install_without(Path(folder), tools)


def _install_without(tmp_path: Path, tools: tuple[str, ...]) -> None:
    for name in ("bash", "cat", *tools):
        (tmp_path / name).symlink_to(shutil.which(name) or "/bin/false")
    wanted = tmp_path / "list"
    wanted.write_text("no-such-package-of-debian\n")
    command = ["/bin/bash", str(INSTALL), "--if-possible", str(wanted)]
    if os.geteuid() == 0:
        command = [shutil.which("setpriv") or "setpriv", "--reuid=65534", "--clear-groups", *command]
    done = subprocess.run(  # noqa: S603
        command, env={"PATH": str(tmp_path)}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "no-such-package-of-debian\n"), done.stderr
    assert "apt-get install --no-install-recommends no-such-package-of-debian" in done.stderr
    command.remove("--if-possible")
    done = subprocess.run(  # noqa: S603
        command, env={"PATH": str(tmp_path)}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1


@pytest.mark.parametrize("ci", [False, True])
def test_tests_of_the_router_are_skipped_if_haproxy_cannot_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: bool
) -> None:
    install = tmp_path / "install.sh"
    install.write_text("#!/bin/sh\necho 'E: Failed to fetch http://deb.debian.org' >&2\nexit 100\n", encoding="utf-8")
    install.chmod(0o700)
    monkeypatch.delenv("CI", raising=False)
    if ci:
        monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError if ci else pytest.skip.Exception, match="Failed to fetch"):
        unpack(install)
