"""Output of every command at 80 and 120 columns and in a pipe matches the recorded screens in `screens/`.

`VOICE_WRITE_SCREENS=1 pytest tests/ops/test_screens.py` records them again.
"""

import io
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import typer.rich_utils
from rich.cells import cell_len
from rich.console import RenderableType
from typer._click import Command  # typer contains its own click
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

import voice_ops.cost.command
import voice_ops.diagram.command
import voice_ops.gameday.command
import voice_ops.preview.command
import voice_ops.restore.command
import voice_ops.sandbox.command
from tests.excerpts import NARROW, SCREENS, compare, screens, strip_formatting
from tests.nonempty import nonempty
from tests.ops.test_terminal import ROOT
from voice_blueprint.file.model.deployment import Deployment
from voice_ops import output
from voice_ops.cli import COMMANDS, COMMANDS_BY_PANEL, app, load_command
from voice_ops.exits import INVALID_INPUT
from voice_ops.gameday.command import ScenarioResult, list_runbook_pages
from voice_ops.output import PlainConsole, create_table, format_markup
from voice_ops.preflight.report import create_check_result, print_report
from voice_ops.preview.tree import print_violations
from voice_ops.progress import Progress
from voice_sandbox.azure.policy import PolicyViolation
from voice_sandbox.rehearsals.claim import VerificationResult

SURFACES = {NARROW: (80, True), "120 columns": (120, True), "pipe": (120, False)}
"""Width, and whether it is a terminal."""

INIT_OPTIONS = "--cloud aws --region us-east-1 --calls 500 --budget 20000"
COMMAND_LINES = {
    "init": [f"init mine.yaml {INIT_OPTIONS}", "init x.yaml --cloud aws --region nowhere --calls 1 --budget 1"],
    "new": [f"new platform {INIT_OPTIONS}", "new platform --cloud aws --region nowhere --calls 1 --budget 1"],
    "plan": [
        "plan deployments/small.yaml",
        "plan deployments/production-azure.yaml",
        "plan deployments/production-us-east-1.yaml --calls 100000",
        "plan deployments/seed.yaml",
        "plan missing.yaml",
    ],
    "checks": ["checks", "checks extra"],
    "schema": ["schema extra"],
    "cost": ["cost deployments/small.yaml", "cost missing.yaml"],
    "diagram": [
        "diagram deployments/small.yaml",
        "diagram missing.yaml",
    ],
    "preview": ["preview azure deployments/production-azure.yaml --state .", "preview azure deployments/small.yaml"],
    "simulate": ["simulate deployments/small.yaml --load az-outage", "simulate deployments/small.yaml --load nothing"],
    "gameday": ["gameday deployments/sandbox.yaml", "gameday missing.yaml"],
    "sandbox": ["sandbox missing.yaml"],
    "preflight": ["preflight deployments/small.yaml --offline", "preflight missing.yaml"],
    "images": [
        "images",
        "images build-args gateway --registry registry.example/voice",
        "images publish deployments/small.yaml --registry registry.example/voice",
        "images build-args nothing --registry registry.example/voice",
    ],
    "dashboards": [
        "dashboards deployments/production-azure.yaml --output .",
        "dashboards deployments/small.yaml --output .",
    ],
    "status": ["status deployments/small.yaml"],
    "rollout": ["rollout missing.yaml"],
    "prune": ["prune deployments/production-azure.yaml"],
    "teardown": ["teardown missing.yaml"],
    "drain": ["drain deployments/small.yaml i-0123456789abcdef0"],
    "rotate": ["rotate deployments/small.yaml", "rotate deployments/production-azure.yaml"],
    "restore": ["restore deployments/production-azure.yaml"],
    "call": ["call missing.wav --server http://127.0.0.1:1"],
    "loadtest": ["loadtest nothing", "loadtest http://127.0.0.1:1 --concurrency 0"],
    "calibrate": ["calibrate deployments/small.yaml nothing", "calibrate deployments/small.yaml vad"],
}
"""Command lines in addition to the help: typical successes and errors that take a second without network."""


CACHED_FUNCTIONS = (
    (voice_ops.cost.command, "_synthesize_sections"),
    (voice_ops.diagram.command, "synthesize_templates"),
    (voice_ops.gameday.command, "simulate_scenarios"),
    (voice_ops.preview.command, "rehearse_deployment"),
)
"""Functions whose results are cached, since they take seconds and do not depend on the surface."""

SCRIPTS = ("images build-args", "images publish", "diagram deployments/small.yaml")
"""Commands whose output is read by programs, such as a shell or Mermaid, and must not be wrapped."""

NIGHTLY_COMMANDS = (
    *("checks", "diagram deployments", "plan deployments/production", "plan deployments/seed"),
    "preview azure deployments/prod",
)
"""Commands that print hundreds of lines, or the same output on each surface; only one surface is recorded."""

HASH = re.compile(r"-[0-9a-f]{8,10}$", re.MULTILINE)
"""Hash suffix of generated names."""


def leaf_commands() -> list[tuple[str, ...]]:
    """Return all leaf commands, each with its group if any."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = load_command(name)
        found.append((name,))
        found += [(name, part) for part in command.commands] if isinstance(command, TyperGroup) else []
    return found


@pytest.fixture(autouse=True)
def _without_sign_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove credentials from the environment, and reuse the results of one surface for the others."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "HOME": str(tmp_path),
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_COLOR": "1",
    }.items():
        monkeypatch.setenv(name, value)
    for module, name in CACHED_FUNCTIONS:
        monkeypatch.setattr(module, name, cached_by_deployment(getattr(module, name)))
    # A nightly test of `gameday` runs its drills, and compares its output with this screen.
    for name in ("Rehearsal", "OperationsRehearsal"):
        monkeypatch.setattr(voice_ops.gameday.command, name, MagicMock())
    monkeypatch.setattr(voice_ops.gameday.command, "_run_drill", simulated_drill)


def simulated_drill(deployment: Deployment, name: str, progress: Progress, _: object) -> ScenarioResult:
    with progress.phase(name):
        return ScenarioResult(name, 0, None, 3.0, "the local AWS", list_runbook_pages(deployment, name))


def cached_by_deployment(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the results of a function by deployment."""
    known: dict[str, Any] = {}

    def answer(deployment: Deployment, *others: object) -> Any:  # noqa: ANN401  of another module
        if deployment.name not in known:
            known[deployment.name] = compute(deployment, *others)
        return known[deployment.name]

    return answer


def screen(monkeypatch: pytest.MonkeyPatch, folder: Path, surface: str, arguments: list[str]) -> str:
    """Return a command's output in a folder with the shipped files, and its exit code."""
    width, terminal = SURFACES[surface]
    shutil.copytree(ROOT / "deployments", folder / "deployments")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(typer.rich_utils, "MAX_WIDTH", width)
    for console in (output.out, output.err):
        monkeypatch.setattr(console, "_width", width)
        monkeypatch.setattr(console, "_force_terminal", terminal)
        monkeypatch.setattr(console, "no_color", True)
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, SystemExit | None), done.exception
    # The path of the checkout depends on the machine; commands quote it if it contains a space.
    checkout = re.escape(os.path.relpath(ROOT))
    shown = HASH.sub("-HASH", strip_formatting(done.stdout))
    shown = re.sub(rf"'{checkout}([^'\s]*)'|{checkout}", lambda path: f"../checkout{path[1] or ''}", shown)
    if (errors := strip_formatting(done.stderr)).strip():
        shown += f"── stderr\n{errors}"
    return shown + (f"── exit code {done.exit_code}\n" if done.exit_code else "")


def too_wide(text: str, width: int) -> list[str]:
    """Return lines that are wider than the terminal, except single long words."""
    return [
        line for line in text.splitlines() if cell_len(line) > width and max(map(cell_len, line.split())) < width - 8
    ]


def help_pages(name: str) -> list[str]:
    return [f"{' '.join(leaf)} --help" for leaf in leaf_commands() if leaf[0] == name]


@pytest.mark.parametrize("name", ["voice", *COMMANDS])
def test_screens_of_a_command_match_the_recorded_ones(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = (
        [*help_pages(name), *COMMAND_LINES[name]]
        if name != "voice"
        else ["--help", "nothing", "plan --nothing", "bench"]
    )
    text = ""
    for number, run in enumerate(runs):
        surfaces = [NARROW] if run.startswith(NIGHTLY_COMMANDS) and "--help" not in run else list(SURFACES)
        shown = {
            surface: screen(monkeypatch, tmp_path / f"{number}-{surface}", surface, run.split()) for surface in surfaces
        }
        for surface in surfaces:
            width, terminal = SURFACES[surface]
            whole = not terminal or run.startswith(SCRIPTS)
            assert whole or too_wide(shown[surface], width) == [], run
        text += screens(f"voice {run}", shown)
    assert not re.search(r"\[/?(red|green|yellow|blue|magenta|dim|bold|/)\]|<bool>|Traceback", text)
    compare(name, text)


def test_every_command_has_recorded_screens_and_no_other_exists() -> None:
    assert COMMAND_LINES.keys() == COMMANDS.keys()
    rehearsals = {"rehearsal-aws", "rehearsal-azure"}
    assert {file.stem for file in SCREENS.glob("*.txt")} == {"voice", *COMMANDS, *rehearsals}


@pytest.mark.parametrize("leaf", leaf_commands(), ids="-".join)
def test_help_ends_with_the_exit_codes(leaf: tuple[str, ...]) -> None:
    assert "Exit codes" in CliRunner().invoke(app, [*leaf, "--help"]).stdout


@pytest.mark.parametrize("run", [run for runs in COMMAND_LINES.values() for run in runs if run.startswith("plan")])
def test_messages_in_a_pipe_are_single_lines(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that is searched for with grep stays on one line."""
    monkeypatch.setitem(SURFACES, "wide", (1_000, True))
    piped = screen(monkeypatch, tmp_path / "pipe", "pipe", run.split())
    wide = screen(monkeypatch, tmp_path / "wide", "wide", run.split())
    messages = [line for line in wide.splitlines() if line.lstrip().startswith(("✗", "!", "→", "i info"))]
    assert messages
    assert set(messages) <= set(piped.splitlines())


def test_every_command_is_in_one_help_panel() -> None:
    assert sorted(name for names in COMMANDS_BY_PANEL.values() for name in names) == sorted(COMMANDS)


DATA = [
    ":100: is line 100",
    "[bold]no markup[/bold]",
    "[red]",
    "a[0] and b[i]",
    ":warning: :+1:",
    "x" * 200,
    "a\\[b]\\",
]


@pytest.mark.parametrize("data", DATA)
def test_file_names_are_printed_unchanged(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["plan", data])
    assert data[:40] in done.stderr.replace("\n", "")
    file = Path(f"{data.replace('/', '')[:40]}.yaml")
    file.write_text(f"name: {json.dumps(data)}\n", encoding="utf-8")
    printed = CliRunner().invoke(app, ["plan", str(file)]).stderr.replace("\n", "")
    assert file.name in printed


def _show_snapshot(data: str) -> None:
    account: Any = None
    snapshot: Any = type("Snapshot", (), dict.fromkeys(("name", "group", "source", "version", "status"), data))
    snapshot.created_at = None
    voice_ops.restore.command._print_snapshots(account, [snapshot], as_json=False)


def _run_a_phase(data: str) -> None:
    with Progress(output.out).phase(data):
        pass


PRINTERS: dict[str, Callable[[str], object]] = {
    "a line": output.out.print,
    "a wrapped line": lambda data: output.out.print(data, soft_wrap=True),
    "an error": output.print_error,
    "a style": lambda data: output.out.print(format_markup("[red]✗[/] [dim]{}[/]", data)),
    "claims of a rehearsal": lambda data: voice_ops.sandbox.command.print_claims(
        [VerificationResult(data, passed=False)]
    ),
    "answers of an account": lambda data: print_report(
        output.out, [create_check_result(data, data, data, data, blocks=data)]
    ),
    "snapshots": _show_snapshot,
    "a phase": _run_a_phase,
    "policies": lambda data: print_violations(
        output.out, [PolicyViolation(data, data, mandatory=True, resource=data, urn="", message=data)]
    ),
}


@pytest.mark.parametrize("printer", PRINTERS)
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("data", DATA)
def test_data_is_not_interpreted_as_markup_or_emoji(
    data: str, terminal: bool, printer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for console in (output.out, output.err):
        monkeypatch.setattr(console, "_width", 400)
        monkeypatch.setattr(console, "_force_terminal", terminal)
        monkeypatch.setattr(console, "no_color", True)
    PRINTERS[printer](data)
    shown = capsys.readouterr()
    assert data in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown.out + shown.err)


def test_all_output_uses_the_two_consoles() -> None:
    """Other rich consoles would interpret data as markup."""
    for file in nonempty((ROOT / "voice_ops").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        assert "rich.markup" not in text, f"{file}: print data with voice_ops.output.format_markup"
        if file.name != "output.py":
            assert not re.search(r"\bConsole\(", text), f"{file}: print with voice_ops.output.out or err"
            assert "from_markup" not in text, f"{file}: use voice_ops.output.format_markup"


def printed(table: RenderableType, width: int) -> str:
    console = PlainConsole()
    console.file, console.width = io.StringIO(), width
    console.print(table)
    return console.file.getvalue()


def test_the_widest_cell_of_a_too_wide_row_is_printed_below() -> None:
    table = create_table("fleets", ["name"], ["calls"], "why")
    table.add_row("vad", "2,000", "one two three four five six seven eight nine ten")
    table.add_row("asr", "25", "")
    assert [line.rstrip() for line in printed(table, 40).splitlines()] == [
        "fleets", "", "  name   calls", " ──────────────", "  vad    2,000",
        "      why: one two three four five six", "      seven eight nine ten", "  asr       25", "",
    ]  # fmt: skip
    assert "why: " not in printed(table, 80)


def commands_with_json(command: Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return every command with `--json`, with arguments that refer to a missing file."""
    if isinstance(command, TyperGroup):
        parts = [(*path, name) for name in (COMMANDS if not path else command.commands)]
        own = [each for part in parts for each in commands_with_json(_part(command, part), part)]
    else:
        own = []
    if not any(parameter.name == "as_json" for parameter in command.params):
        return own
    required = [parameter for parameter in command.params if parameter.required]
    arguments = [each for each in required if each.param_type_name == "argument"]
    options = [each for each in required if each.param_type_name == "option"]
    if not any(each.name == "file" for each in arguments):
        return own
    values = {"file": "missing.yaml"}
    return [
        *own,
        (
            *path,
            *(values.get(str(each.name), "nothing") for each in arguments),
            *(word for each in options for word in (each.opts[0], "nothing")),
            "--json",
        ),
    ]


def _part(group: TyperGroup, path: tuple[str, ...]) -> Command:
    return load_command(path[0]) if len(path) == 1 else group.commands[path[-1]]


ALL_JSON = commands_with_json(get_command(app))
REFUSED_JSON = [
    *ALL_JSON,
    ("plan", "deployments/seed.yaml", "--json"),
    ("cost", "deployments/seed.yaml", "--json"),
    ("preview", "azure", "deployments/small.yaml", "--json"),
    ("simulate", "deployments/seed.yaml", "--json"),
    ("images", "rehearse", "nothing", "--json"),
    ("loadtest", "nothing", "--json"),
    ("plan", "deployments/small.yaml", "--calls", "many", "--json"),
    ("status", "--json"),
]


def test_most_commands_have_json() -> None:
    assert len(ALL_JSON) > 14


@pytest.mark.parametrize("arguments", REFUSED_JSON, ids=" ".join)
def test_a_refusal_with_json_is_printed_as_json(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, arguments)
    report = json.loads(done.stdout)
    assert done.exit_code == INVALID_INPUT
    assert report["refused"] is True
    assert report.get("problems") or report.get("findings")
    assert "✗ " in done.stderr
