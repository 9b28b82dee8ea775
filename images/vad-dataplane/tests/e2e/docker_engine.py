"""A private Docker daemon, and the `docker run` arguments that a host's user data renders."""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from network import Network
from running import BUILD, CHANNELS, wait_for

from tests.synthesized import edited_sandbox, user_data

CLIENT = shutil.which("docker") or "docker"
IMAGE = "voice/vad-dataplane"
PROGRAM = "/usr/bin/vad-dataplane"
MODULE = "/usr/lib/voice/vad.so"
HUGE_PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
HUGE_PAGES_FOLDER = Path("/run/voice/hugepages")
"""Where user data mounts huge pages on a host (userdata/voice_userdata/steps/huge_pages.sh)."""
UNKNOWN_TO_OLD_DOCKERS = ("--cap-add=BPF", "--cap-add=PERFMON")
"""Docker 20.10 of Debian 12 rejects these names. The kernel accepts ``SYS_ADMIN``, which the program has, in place of
both."""
RAISED_LIMIT = "--ulimit=memlock=-1:-1"
"""runc refuses this where this machine's root lacks ``SYS_RESOURCE``; with ``IPC_LOCK`` the program's memory is not
counted against the limit."""
_NEEDS_THE_HOST = ("--env-file=", "--log-", "--name=", "--volume=/run/voice/secrets/", "--volume=/run/voice/dataplane")
"""Arguments that the test replaces: it has its own environment and folder, and no CloudWatch Logs."""


def rendered_arguments(folder: Path) -> list[str]:
    """Return the `docker run` arguments of the sandbox's VAD host, as its own user data renders them."""
    digest = f"sha256:{'1' * 64}"
    stacks = edited_sandbox({"images": {"vad-dataplane": digest, "telemetry": digest}}, folder)
    (template,) = stacks["vad"].properties("EC2::LaunchTemplate")[:1]
    script = user_data(template).removesuffix('main "$@"\n')
    script += "RUN=/run/voice INSTANCE_ID=i-0 DEVICES=()\narguments_of vad-dataplane\n"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    *options, image = done.stdout.splitlines()
    assert digest in image
    return options


class Docker:
    """A Docker daemon whose host network is the program's namespace."""

    def __init__(self, folder: Path, network: Network) -> None:
        self._folder = folder
        self._socket = f"unix://{folder}/docker.sock"
        self._log = (folder / "dockerd.log").open("w")
        own = [f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        with network.near():
            self._daemon = subprocess.Popen(
                ["dockerd", f"--host={self._socket}", *own, "--iptables=false", "--bridge=none"],
                stdout=self._log,
                stderr=subprocess.STDOUT,
            )
        wait_for("dockerd answers", lambda: self._call("version").returncode == 0)
        self._refused: set[str] = set()
        version = self._call("version", "--format={{.Server.Version}}").stdout
        if int(version.split(".")[0]) < 23:
            self._refused.update(UNKNOWN_TO_OLD_DOCKERS)
        raised = ["prlimit", "--memlock=unlimited:unlimited", "true"]
        if subprocess.run(raised, check=False, stderr=subprocess.DEVNULL).returncode:
            self._refused.add(RAISED_LIMIT)

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([CLIENT, f"--host={self._socket}", *words], capture_output=True, text=True, check=False)

    def load(self, archive: Path) -> None:
        """Create the image from an archive of its files."""
        done = self._call("import", f'--change=CMD ["{PROGRAM}"]', str(archive), IMAGE)
        assert done.returncode == 0, done.stderr

    def command(self, rendered: list[str], folder: Path, environment: dict[str, str]) -> list[str]:
        """Return the command that runs the program with the rendered arguments in a test's folder."""
        file = folder / "environment"
        file.write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
        kept = [option for option in rendered if not option.startswith(_NEEDS_THE_HOST) and option not in self._refused]
        # A program that runs in its build folder looks there for the eBPF program; the image has it installed.
        own = [f"--volume={path}:{path}" for path in (folder, BUILD / "steer.bpf.o", CHANNELS)]
        own += [f"--env-file={file}", "--log-driver=none"]
        return [CLIENT, f"--host={self._socket}", "run", *kept, *own, IMAGE]

    def stop(self) -> None:
        self._daemon.terminate()
        self._daemon.wait(60)
        subprocess.run(["umount", "--lazy", f"{self._folder}/exec/netns/default"], check=True)
        self._log.close()


def archive_of_build(folder: Path) -> Path:
    """Pack the built program with the libraries that it loads from this machine, at their paths in a merged /usr."""
    drivers = sorted(Path("/usr/lib").glob("*/dpdk/pmds-*/*.so*"))
    program = BUILD / "vad-dataplane"
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        tar.add(program, PROGRAM)
        tar.add(BUILD / "vad" / "vad.so", MODULE)
        for path in sorted({link for file in (*drivers, *_libraries([program, *drivers])) for link in _links(file)}):
            tar.add(path)
    return archive


def _libraries(files: list[Path]) -> set[Path]:
    listed = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=True).stdout
    return {Path(word) for line in listed.splitlines() for word in line.split() if word.startswith("/lib")}


def _links(file: Path) -> Iterator[Path]:
    """Yield a file and the targets of its links, in folders that are not links themselves."""
    while True:
        file = file.parent.resolve() / file.name
        yield file
        if not file.is_symlink():
            return
        file = file.parent / file.readlink()


def reserve_huge_pages(pages: int) -> None:
    """Reserve pages of 2 MiB and mount them as user data does.

    Raises:
        OSError: The kernel cannot reserve that many.
    """
    (HUGE_PAGES / "nr_hugepages").write_text(str(pages))
    if int((HUGE_PAGES / "nr_hugepages").read_text()) != pages:
        raise OSError(f"the kernel has no {pages} huge pages to give")
    HUGE_PAGES_FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "voice", str(HUGE_PAGES_FOLDER)], check=True)


def return_huge_pages() -> None:
    subprocess.run(["umount", str(HUGE_PAGES_FOLDER)], check=True)
    (HUGE_PAGES / "nr_hugepages").write_text("0")
