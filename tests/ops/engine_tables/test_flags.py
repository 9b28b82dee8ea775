"""Flags are extracted from every form in which the engines define them."""

import pytest

from tests.ops.engine_tables.conftest import Wheel
from tools.engine_tables.flags import FlagReader
from tools.engine_tables.names import MissingDefinitionError
from voice_blueprint.engines.published.release import Command, Setting

CONFIGS = """
    from __future__ import annotations
    import enum
    from dataclasses import dataclass, field
    from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional
    from pydantic import Field
    from .names import *

    if TYPE_CHECKING:
        from .formats import Formats
    else:
        Formats = str

    Producer = Literal["producer", "both"]
    Role = Literal[Producer, "consumer"]

    class Mode(enum.Enum):
        OFF = 0
        FULL = (1, 2)

    class PerPrompt(dict[str, int]):
        pass

    def config(cls): return cls

    @config
    class Inner:
        depth: int = 3

    @config
    class Parent:
        inherited: bool = False
        "Docs."

    @config
    class Engine(Parent):
        tensor_size: Annotated[int, Field(ge=1)] = 1
        utilization: float = Field(default=0.92, gt=0, le=1)
        length: int = None
        role: Role | None = None
        format: str | Formats = "auto"
        color: Color = DEFAULT_COLOR
        mode: Mode = Mode.FULL
        inner: Inner = field(default_factory=Inner)
        maybe_inner: Optional[Inner] = None
        limits: PerPrompt = Field(default_factory=PerPrompt)
        names: list[str] | None = None
        pair: tuple[int, int] = (1, 2)
        token: bool | str | None = None
        tokens: int = 4 * 1024
        overrides: dict[str, Any] | str = field(default_factory=dict)
        made_later: int = field(init=False)
        _hidden: int = 1
"""
ENGINE = {
    "thing/__init__.py": "",
    "thing/names.py": 'from typing import Literal\nColor = Literal["red", "green"]\nDEFAULT_COLOR: Color = "green"\n',
    "thing/formats.py": 'from typing import Literal\nFormats = Literal["hf", "mistral"]\n',
    "thing/config.py": CONFIGS,
    "vllm/engine/args.py": """
        import argparse
        import json
        from thing.config import Engine

        human_readable_int_args = {"tokens"}

        def size(): human_readable_int_args = {"tokens"}

        class Args:
            @staticmethod
            def add_cli_args(parser):
                kwargs = get_kwargs(Engine)
                group = parser.add_argument_group("Engine")
                group.add_argument("--tensor-size", "-tp", **kwargs["tensor_size"])
                group.add_argument("--utilization", "--use", dest="utilization", **kwargs["utilization"])
                group.add_argument("--length", **{**kwargs["length"], "default": 7})
                group.add_argument("--role", **kwargs["role"])
                group.add_argument("--format", **kwargs["format"])
                group.add_argument("--color", **kwargs["color"])
                group.add_argument("--mode", **kwargs["mode"])
                group.add_argument("--inner", "-i", **kwargs["inner"])
                kwargs["maybe_inner"]["type"] = optional_type(json.loads)
                group.add_argument("--maybe-inner", **kwargs["maybe_inner"])
                group.add_argument("--limits", **kwargs["limits"])
                group.add_argument("--names", **kwargs["names"])
                group.add_argument("--pair", **kwargs["pair"])
                group.add_argument("--token", **kwargs["token"])
                group.add_argument("--tokens", **kwargs["tokens"])
                group.add_argument("--overrides", **kwargs["overrides"])
                color = kwargs["color"]
                color["type"] = lambda text: text.lower()
                group.add_argument("--paint", **color)
                if True:
                    group.add_argument("--inherited", **kwargs["inherited"])
                return parser
    """,
}


def flags(command: Command) -> dict[str, Setting]:
    return {flag.name: flag for flag in command.flags}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("--tensor-size", {"aliases": ("-tp",), "type": "int", "default": 1}),
        ("--utilization", {"aliases": ("--use",), "type": "float", "default": 0.92}),
        ("--length", {"type": "int", "default": 7}),
        ("--role", {"choices": ("both", "consumer", "producer"), "nullable": True}),
        ("--format", {"choices": ("hf", "mistral"), "extensible": True, "default": "auto"}),
        ("--color", {"choices": ("green", "red"), "default": "green"}),
        ("--paint", {"choices": ("green", "red"), "default": "green"}),
        ("--mode", {"choices": ("OFF", "FULL", 0), "any_case": True, "default": "FULL"}),
        ("--inner", {"aliases": ("-i",), "type": "json", "config": "Inner", "default": {}}),
        ("--maybe-inner", {"type": "json", "config": "Inner", "nullable": True}),
        ("--limits", {"type": "json", "default": {}}),
        ("--names", {"nargs": "+", "nullable": True}),
        ("--pair", {"type": "int", "nargs": 2, "default": [1, 2]}),
        ("--token", {"nargs": "?"}),
        ("--tokens", {"type": "size", "default": 4096}),
        ("--overrides", {"type": "json-or-str", "default": {}}),
        ("--inherited", {"type": "bool", "default": False}),
    ],
)
def test_flag_derived_from_a_configuration_class(wheel: Wheel, name: str, expected: dict[str, object]) -> None:
    command = FlagReader(wheel(ENGINE)).read("vllm.engine.args.Args.add_cli_args")
    found = flags(command)[name].model_dump(exclude_defaults=True)
    assert found == {"name": name} | expected


PLAIN = """
    import argparse
    import json
    from typing import get_args
    from .kinds import Kind, Kinds

    DEFAULT_NAME = "base"
    LIMIT = 10 * 1024

    def json_object(text):
        return json.loads(text)

    def positive(text):
        return float(text)

    def add(parser, use_prefix=False):
        prefix = "the-" if use_prefix else ""
        parser.add_argument("model", nargs="?")
        parser.add_argument("--verbose", action="store_true", default=False)
        parser.add_argument("--fast", action=argparse.BooleanOptionalAction, default=True)
        parser.add_argument("--many", action="append", metavar="JSON", default=[])
        parser.add_argument("--kind", choices=("auto", *get_args(Kind)), default=Kinds.B.value)
        parser.add_argument("--each", choices=[kind.value for kind in Kinds])
        parser.add_argument("--policy", choices=get_policies())
        parser.add_argument("--name", default=f"{DEFAULT_NAME}-x")
        parser.add_argument("--limit", type=int, default=LIMIT)
        parser.add_argument("--below", type=int, default=-1)
        parser.add_argument("--object", type=json_object)
        parser.add_argument("--share", type=positive)
        parser.add_argument(f"--{prefix}port", type=int)
        parser.add_argument("--version", action="version", version="1")
        parser.add_argument("--computed", default=compute())
        from .more import add_more
        add_more(parser)
        outside.add(parser)
        return parser
"""
TOOL = {
    "tool/__init__.py": "",
    "tool/kinds.py": """
        import enum
        from typing import Literal
        Kind = Literal["a", "b"]
        class Kinds(str, enum.Enum):
            A = "a"
            B = "b"
    """,
    "tool/more.py": 'def add_more(parser):\n    parser.add_argument("--more", type=float, default=1 / 2)\n',
    "tool/args.py": PLAIN,
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model", {"nargs": "?"}),
        ("--verbose", {"type": "switch"}),
        ("--fast", {"type": "bool", "default": True}),
        ("--many", {"type": "json", "repeats": True, "default": []}),
        ("--kind", {"choices": ("a", "auto", "b"), "default": "b"}),
        ("--each", {"choices": ("a", "b")}),
        ("--policy", {}),
        ("--name", {"default": "base-x"}),
        ("--limit", {"type": "int", "default": 10240}),
        ("--below", {"type": "int", "default": -1}),
        ("--object", {"type": "json"}),
        ("--share", {"type": "float"}),
        ("--port", {"type": "int"}),
        ("--computed", {}),
        ("--more", {"type": "float", "default": 0.5}),
    ],
)
def test_explicitly_declared_flag(wheel: Wheel, name: str, expected: dict[str, object]) -> None:
    found = flags(FlagReader(wheel(TOOL)).read("tool.args.add"))[name].model_dump(exclude_defaults=True)
    assert found == {"name": name} | expected


def test_unfollowable_definitions_are_reported(wheel: Wheel) -> None:
    command = FlagReader(wheel(TOOL)).read("tool.args.add")
    assert command.unparsed_functions == ("outside.add",)
    assert command.read_from == ("tool/args.py", "tool/more.py")
    assert "--version" not in flags(command)


def test_class_with_a_flag_for_each_field(wheel: Wheel) -> None:
    reader = wheel(
        {
            "app/args.py": """
                import json
                class Base:
                    @classmethod
                    def customize(cls, kwargs):
                        kwargs["origins"]["type"] = json.loads
                        return kwargs

                    @classmethod
                    def add_cli_args(cls, parser):
                        kwargs = get_kwargs(cls)
                        kwargs = cls.customize(kwargs)
                        group = parser.add_argument_group("x")
                        for key, value in kwargs.items():
                            group.add_argument(f"--{key.replace('_', '-')}", **value)
                        return parser

                @dataclass
                class Front(Base):
                    origins: list[str] = field(default_factory=lambda: ["*"])
                    host_name: str | None = None

                    @classmethod
                    def customize(cls, kwargs):
                        kwargs = super().customize(kwargs)
                        del kwargs["origins"]["nargs"]
                        return kwargs

                class Serve:
                    def subparser_init(self, subparsers):
                        parser = subparsers.add_parser("serve")
                        parser = Front.add_cli_args(parser)
                        return parser
            """,
        }
    )
    found = flags(FlagReader(reader).read("app.args.Serve.subparser_init"))
    assert found == {
        "--host-name": Setting(name="--host-name", nullable=True),
        "--origins": Setting(name="--origins", type="json", default=["*"]),
    }


def test_vllm_pairs_enable_with_disable(wheel: Wheel) -> None:
    reader = wheel(
        {
            "vllm/utils/argparse_utils.py": "class EnableDisableAction:\n    pass\n",
            "vllm/args.py": "def add(parser):\n"
            '    parser.add_argument("--enable-x", action=argparse.BooleanOptionalAction)\n',
        }
    )
    assert flags(FlagReader(reader).read("vllm.args.add"))["--enable-x"].off == "--disable-x"


def test_a_moved_function_is_reported(wheel: Wheel) -> None:
    with pytest.raises(
        MissingDefinitionError, match=r"no tool\.args\.gone; update its location in tools/engine_tables/recipes\.yaml"
    ):
        FlagReader(wheel(TOOL)).read("tool.args.gone")
