"""The picture shows what the templates say, and the one in docs/ is not stale."""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from ops.cli import app
from ops.diagram import Edge, Graph, Node, derive, dot, mermaid, svg
from ops.diagram import Path as Track
from ops.diagram import command as diagram
from tests.synthesized import HOSTS, ROOT, Stacks, edited_sandbox, shipped

PRODUCTION = ROOT / "deployments/production-us-east-1.yaml"
BOXES = {
    *("browser", "native-client", "session-api", "public-load-balancer", "api-load-balancer", "gateway"),
    *("vad", "inf2", "trn1", "p5", "valkey", "aws-apis", "registry", "observability", "agent-load-balancer", "agents"),
}
AUDIO = [("public-load-balancer", "vad"), ("vad", "inf2"), ("vad", "trn1"), ("vad", "p5")]
AUDIO += [("browser", "public-load-balancer"), ("public-load-balancer", "gateway"), ("gateway", "vad")]
AUDIO += [("native-client", "public-load-balancer"), ("inf2", "valkey"), ("trn1", "valkey"), ("p5", "valkey")]
AUDIO += [("browser", "agent-load-balancer"), ("agent-load-balancer", "agents"), ("agents", "agents")]
CONTROL = [("browser", "session-api"), ("native-client", "session-api"), ("session-api", "api-load-balancer")]
CONTROL += [("api-load-balancer", "gateway"), ("gateway", "valkey"), ("agents", "api-load-balancer")]

SVG = "{http://www.w3.org/2000/svg}"


def graph_from(stacks: Stacks, *, without: str | None = None) -> Graph:
    return derive("title", {tier: stack.template for tier, stack in stacks.items() if tier != without})


def node(graph: Graph, id_: str) -> Node:
    return next(node for node in graph.nodes if node.id == id_)


def voice_diagram(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["diagram", *map(str, arguments)])


def parsed(drawn: str) -> ET.Element:
    return ET.fromstring(drawn)  # noqa: S314  our own output


@pytest.fixture(scope="module")
def production() -> Graph:
    return graph_from(shipped("production-us-east-1"))


@pytest.fixture(scope="module")
def sandbox() -> Graph:
    return graph_from(shipped("sandbox"))


def test_everything_a_newcomer_asks_for_is_there(production: Graph) -> None:
    assert {node.id for node in production.nodes} == BOXES


def test_both_paths_are_whole_and_have_nothing_else(production: Graph) -> None:
    def track(path: Track) -> set[tuple[str, str]]:
        return {(edge.source, edge.target) for edge in production.edges if edge.path is path}

    assert track(Track.AUDIO) == set(AUDIO)
    assert track(Track.CONTROL) == set(CONTROL)


def test_arrows_carry_ports_and_the_purpose_that_the_contract_gives_them(production: Graph) -> None:
    def edge(source: str, target: str) -> Edge:
        (found,) = (each for each in production.edges if (each.source, each.target) == (source, target))
        return found

    assert edge("public-load-balancer", "vad").lines == ("UDP 5004 RTP or SRTP audio", "TCP 8081 health")
    assert edge("vad", "p5").lines == ("UDP 5006 AudioChunk datagrams",)
    assert "16 kHz mono" in edge("native-client", "public-load-balancer").purpose
    assert edge("session-api", "api-load-balancer").lines == ("TCP 8080 VPC link",)
    assert edge("inf2", "valkey").lines == ("TCP 6379 writes transcripts",)
    assert edge("gateway", "valkey").lines == ("TCP 6379 reads transcripts",)


def test_the_zones_of_a_fleet_are_one_box(sandbox: Graph) -> None:
    vad = node(sandbox, "vad")
    assert vad.title == "vad: c8g.12xlarge x 3 zones"
    assert vad.lines == ("1-10 hosts in each zone",)
    assert node(sandbox, "inf2").lines == ("12 x Inferentia2", "1-4 hosts")


def test_fleets_without_images_say_why_they_stand_at_0(production: Graph, sandbox: Graph) -> None:
    assert node(production, "p5").lines[-1] == "0-8 hosts *"
    assert any(note.startswith("* held at 0") for note in production.notes)
    assert not sandbox.notes


def test_routes_are_those_of_the_api(production: Graph) -> None:
    lines = node(production, "session-api").lines
    assert {"POST /v1/sessions", "DELETE /v1/sessions/{id}", "GET /v1/sessions/{id}/events (streams)"} < set(lines)
    assert lines[-1] == "lets in by: IAM, WAF"


def test_every_scaling_alarm_appears_with_its_metric_and_change(production: Graph) -> None:
    stacks = shipped("production-us-east-1")
    alarms = {alarm["AlarmName"]: alarm for tier in HOSTS for alarm in stacks[tier].properties("CloudWatch::Alarm")}
    shown = {signal.name: signal for signal in production.signals if signal.fleet not in {"gateway", "agents"}}
    assert set(shown) == set(alarms)
    for name, alarm in alarms.items():
        assert shown[name].metric == alarm["MetricName"]
        assert str(alarm["Threshold"]) in shown[name].condition
    changes = {name.removeprefix("production-us-east-1-"): signal.change for name, signal in shown.items()}
    assert changes["vad-slots-high"] == "+1 per zone"
    assert changes["inf2-slots-high"] == "+1 from 80, +4 from 90, +10 from 98"
    assert changes["inf2-headroom-low"] == "+1 below 20, +4 below 10, +10 below 2"
    assert changes["p5-slots-low"] == "-1"


def test_services_scale_on_what_they_hold(production: Graph) -> None:
    (sockets,), (conversations,) = production.signals_of("gateway"), production.signals_of("agents")
    assert sockets.text == "OpenSockets held at 150 per task: adds or removes tasks"
    assert conversations.text == "Conversations held at 6 per task: adds or removes tasks"


def test_another_deployment_is_another_picture(sandbox: Graph, tmp_path: Path) -> None:
    steps = [{"adjustment": 1}, {"lower_bound": 15, "adjustment": 3}]
    changed = graph_from(
        edited_sandbox(
            {
                "aws.asr.0.instance_type": "inf2.24xlarge",
                "aws.asr.0.hosts": {"min": 2, "max": 7},
                "aws.edge.authorizer": {"kind": "jwt", "issuer": "https://login.callers.dev/", "audience": "voice"},
                "aws.vad.scaling.0.threshold": 75,
                "aws.vad.scaling.0.steps": steps,
            },
            tmp_path,
        )
    )
    assert node(changed, "inf2").title == "inf2: inf2.24xlarge"
    assert node(changed, "inf2").lines[-1] == "2-7 hosts"
    assert node(changed, "session-api").lines[-1] == "lets in by: JWT, which the gateway checks, WAF"
    assert "> 75%" in changed.signals_of("vad")[0].condition
    assert changed.signals_of("vad")[0].change == "+1 from 75, +3 from 90 per zone"
    assert mermaid.render(changed) != mermaid.render(sandbox)
    assert dot.render(changed) != dot.render(sandbox)


@pytest.mark.parametrize(
    ("missing", "boxes"),
    [
        ("edge", {"native-client", "session-api", "public-load-balancer", "api-load-balancer", "gateway"}),
        ("agents", {"agents", "agent-load-balancer"}),
        ("vad", {"vad"}),
        ("asr-inf2", {"inf2"}),
        ("state", {"valkey"}),
        ("registry", {"registry"}),
        ("observability", {"observability"}),
    ],
)
def test_a_missing_stack_takes_only_its_own_boxes(missing: str, boxes: set[str]) -> None:
    graph = graph_from(shipped("production-us-east-1"), without=missing)
    ids = {node.id for node in graph.nodes}
    assert ids == BOXES - boxes
    assert {end for edge in graph.edges for end in (edge.source, edge.target)} <= ids
    assert parsed(svg.render(graph)).tag.endswith("svg")


def test_svg_shows_every_box_and_signal(production: Graph) -> None:
    drawn = svg.render(production)
    texts = {"".join(element.itertext()).strip().replace("\xa0", "") for element in parsed(drawn).iter()}
    for box in production.nodes:
        assert {box.title, *box.lines} <= texts
    for signal in production.signals:
        assert {f"{signal.metric} {signal.condition}:", signal.change} <= texts
    assert drawn == svg.render(production)


def drawn_boxes(group: ET.Element) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of the outlines that a group draws."""
    found = []
    for shape in group.iter():
        if shape.get("stroke", "none") == "none":
            continue
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", shape.get("d") or shape.get("points") or "")]
        across, down = numbers[::2], numbers[1::2]
        found.append((min(across), min(down), max(across), max(down)))
    return found


def test_no_font_makes_a_text_longer_than_its_box(production: Graph) -> None:
    """A viewer squeezes or stretches a text to its ``textLength``, whichever font it has."""
    inside = set()
    for group in parsed(svg.render(production)).iter(f"{SVG}g"):
        boxes = drawn_boxes(group) if group.get("class") == "node" else []
        for text in group.iter(f"{SVG}text") if boxes else ():
            assert text.attrib["lengthAdjust"] == "spacingAndGlyphs"
            assert text.attrib["text-anchor"] == "start"
            x, y, length = (float(text.attrib[name]) for name in ("x", "y", "textLength"))
            around = [box for box in boxes if box[0] < x < box[2] and box[1] < y < box[3]]
            right = min(around, key=lambda box: box[2] - box[0])[2]
            assert x + length < right, text.text
            inside.add(text.text)
    assert {line for node in production.nodes for line in (node.title, *node.lines)} <= inside
    assert {signal.change for signal in production.signals} <= inside


def test_the_picture_is_legible_at_1000_pixels(production: Graph) -> None:
    picture = parsed(svg.render(production))
    scale = 1000 / float(picture.attrib["viewBox"].split()[2])
    texts = list(picture.iter(f"{SVG}text"))
    assert min(float(text.attrib["font-size"]) for text in texts) * scale >= 11
    assert all(float(text.attrib["textLength"]) * scale < 1000 for text in texts)


def test_mermaid_declares_what_its_arrows_join(production: Graph) -> None:
    lines = mermaid.render(production).splitlines()
    assert lines[0] == lines[2] == "---"
    assert lines[3] == "flowchart TB"
    body = [line.strip() for line in lines[4:]]
    declared = {found[1] for line in body if (found := re.match(r'(\w+)\[".*"\](:::signal)?$', line))}
    arrows = [line for line in body if re.search(r"(==|--|\.-)>", line)]
    joined = [re.fullmatch(r'(\w+) (?:==>|-->|-\.->)(?:\|"[^"]*"\|)? (\w+)', line) for line in arrows]
    assert all(joined)
    assert {end for found in joined if found for end in found.groups()} == declared
    assert len(arrows) == len(production.edges) + 6
    assert sum(line.startswith("subgraph ") for line in body) == body.count("end") == 8


def test_mermaid_goes_to_stdout() -> None:
    result = voice_diagram(ROOT / "deployments/sandbox.yaml")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith('---\ntitle: "sandbox: AWS us-east-1, 3 zones"\n---\nflowchart')


def test_the_picture_in_docs_is_what_the_templates_give(tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.svg"
    result = voice_diagram(PRODUCTION, "--output", fresh)
    assert result.exit_code == 0, result.output
    same = fresh.read_text(encoding="utf-8") == (ROOT / "docs/architecture.svg").read_text(encoding="utf-8")
    assert same, "docs/architecture.svg is stale: run `make diagram`, look at the picture and commit it"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("picture.png", "the name has to end in .svg or .mmd"),
        ("picture", "the name has to end in .svg or .mmd"),
        ("missing/picture.svg", "there is no folder"),
        ("folder.svg", "is a folder"),
    ],
)
def test_an_output_that_cannot_be_is_refused_at_once(output: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    result = voice_diagram(PRODUCTION, "--output", tmp_path / output)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_place_that_refuses_the_file_is_named(production: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagram, "graph_of", lambda _: production)
    result = voice_diagram(PRODUCTION, "--output", "/proc/picture.mmd")
    assert result.exit_code == 2
    assert "/proc/picture.mmd: " in result.stderr
    assert "Traceback" not in result.output


def test_a_refused_deployment_has_no_picture() -> None:
    result = voice_diagram(ROOT / "deployments/seed.yaml")
    assert result.exit_code == 2
    assert result.stdout == ""


def test_without_node_it_says_what_to_do(production: Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(diagram, "graph_of", lambda _: production)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    result = voice_diagram(PRODUCTION, "--output", tmp_path / "picture.svg")
    assert result.exit_code == 1
    assert "make setup" in result.stderr
