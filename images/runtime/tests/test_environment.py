"""Messages about invalid variables of a program's environment."""

import pytest
from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from voice_runtime.environment import read_settings


class Settings(BaseSettings):
    """Settings of a program."""

    model_config = SettingsConfigDict(env_prefix="VOICE_")

    port: int
    share: float = Field(0.5, gt=0)
    rates: list[int] = []
    key: SecretStr | None = Field(None, min_length=4)

    @model_validator(mode="after")
    def check(self) -> "Settings":
        if self.port == self.share:
            raise ValueError("the port is the share")
        return self


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({}, ["VOICE_PORT is not set"]),
        (
            {"PORT": "x", "SHARE": "0"},
            [
                "VOICE_PORT='x': Input should be a valid integer, unable to parse string as an integer",
                "VOICE_SHARE='0': Input should be greater than 0",
            ],
        ),
        ({"PORT": "1", "KEY": "abc"}, ["VOICE_KEY: Value should have at least 4 items after validation, not 3"]),
        (
            {"PORT": "1", "RATES": '[1, "x"]'},
            ["VOICE_RATES='x': Input should be a valid integer, unable to parse string as an integer"],
        ),
        ({"PORT": "1", "SHARE": "1"}, ["the port is the share"]),
    ],
)
def test_each_invalid_variable_is_reported_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variables: dict[str, str], lines: list[str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"VOICE_{name}", value)
    with pytest.raises(SystemExit) as ended:
        read_settings(Settings)
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == lines


def test_valid_variables_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_PORT", "8080")
    assert read_settings(Settings).port == 8080


def test_a_long_value_is_shortened(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VOICE_PORT", "x" * 1000)
    with pytest.raises(SystemExit):
        read_settings(Settings)
    assert f"VOICE_PORT='{'x' * 80}': " in capsys.readouterr().err
