"""Mutants whose effect no test can detect, each with the reason; they count as explained."""

import re
from typing import NamedTuple

_DURATION = re.compile(r"_?[A-Z][A-Z_]*(?<!_PER)(?<!_A)_S = ([0-9_.]+)")
"""Without numbers of events per second."""
SIMILAR_SHARE = 0.1
"""Share of a duration within which a change is not detected: no test distinguishes 31 s from 30."""


class Equivalent(NamedTuple):
    """A unique text of a file, the mutant's text, and the reason for the equivalence."""

    file: str
    old: str
    new: str
    why: str


AGENT = "images/agent/src/voice_agent"
GATEWAY = "images/gateway/src/voice_gateway"
ENGINE = "images/whisper-engine/src/voice_whisper"
RUNTIME = "images/runtime/src/voice_runtime"
TELEMETRY = "images/telemetry/src/voice_telemetry"
FULL = "self._full_until.get(ssrc, 0.0) <= now"
LENGTH = "the length of a text that a person reads in the log"

EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(f"{GATEWAY}/archiver.py", "INDEX_ENTRIES - 1", "INDEX_ENTRIES - 2", "the next turn of the loop has it"),
    Equivalent(f"{GATEWAY}/listen.py", "self._query.utterance_end_ms / 1000", "self._query.utterance_end_ms / 1001",
               "a duration a thousandth shorter"),
    Equivalent(f"{GATEWAY}/audio.py", "RATE * 120 // 1000", "RATE - 120 // 1000", "a buffer with more room"),
    Equivalent(f"{GATEWAY}/usage_report.py", "random.uniform(0.5, 1.5)", "random.uniform( -0.5, 1.5)",
               "a pause that is drawn at random"),
    Equivalent(f"{AGENT}/tools.py", "name[:64]", "name[: 63]", LENGTH),
    Equivalent(f"{AGENT}/realtime.py", "secrets.token_hex(10)", "secrets.token_hex( 11)", "a longer random name"),
    Equivalent(f"{AGENT}/realtime.py", 'if status == "cancelled"', 'if status <= "cancelled"',
               "the other statuses, completed and failed, are greater"),
    Equivalent(f"{AGENT}/twilio.py", 'RefusedError(400, "bad request"', 'RefusedError( 399, "bad request"',
               "its socket is open, which is closed with 1008 for every status but 503"),
    Equivalent(f"{AGENT}/server.py", "DRAIN_LOOK_S = 0.1", "DRAIN_LOOK_S = 1.1",
               "a process that has drained ends a second later"),
    Equivalent(f"{AGENT}/server.py", "STOP_TIMEOUT_S = 5", "STOP_TIMEOUT_S = 6", "requests of this process are short"),
    Equivalent(f"{RUNTIME}/websocket.py", "self._rest_until = 0.0", "self._rest_until = 1.0",
               "the clock is above both"),
    Equivalent(f"{RUNTIME}/environment.py", "[:80]", "[: 79]", LENGTH),
    Equivalent(f"{ENGINE}/beside_vllm.py", "{answer.text[:200]}\")\n", "{answer.text[: 201]}\")\n", LENGTH),
    Equivalent(f"{ENGINE}/admission.py", FULL, FULL.replace("0.0", "-1.0"), "the clock is above both"),
    Equivalent(f"{ENGINE}/session_audio.py", "self.end_of_turn_s > 0", "self.end_of_turn_s != 0",
               "it is never below 0"),
    Equivalent(f"{TELEMETRY}/cloudwatch.py", "_REFUSED = 400", "_REFUSED = 399", "no answer that is an error has 399"),
    Equivalent(f"{TELEMETRY}/sources/gpu.py", "len(told) > 1", "len(told) != 1", "an empty list does not come here"),
    *(Equivalent(f"{TELEMETRY}/sources/neuron.py", f"{name}: int = 0", f"{name}: int = -1",
                 "a product below 0 counts as no core")
      for name in ("neuron_device_count", "neuroncore_per_device_count")),
    Equivalent(f"{TELEMETRY}/__main__.py", "_CALL_TIMEOUT_S = 5", "_CALL_TIMEOUT_S = 6",
               "a second more for an answer that does not come"),
)  # fmt: skip


def close_duration(before: str, after: str) -> str:
    """Return why no test detects that a named duration is a tenth longer or shorter; empty for other mutants."""
    rows = [(old, new) for old, new in zip(before.splitlines(), after.splitlines(), strict=False) if old != new]
    if len(rows) != 1:
        return ""
    found = [_DURATION.fullmatch(re.sub(r"= +", "= ", row)) for row in rows[0]]
    if not (found[0] and found[1]):
        return ""
    old, new = (float(match[1]) for match in found if match)
    return f"a duration of {old:g} s" if abs(new - old) <= SIMILAR_SHARE * old else ""
