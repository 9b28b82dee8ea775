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
FULL = "self._full_report_due.get(ssrc, 0.0) <= now"
LENGTH = "the length of a text that a person reads in the log"


def _each(file: str, why: str, *changes: tuple[str, str]) -> list[Equivalent]:
    return [Equivalent(file, old, new, why) for old, new in changes]


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(f"{GATEWAY}/archiver.py", "INDEX_BATCH_SIZE - 1", "INDEX_BATCH_SIZE - 2",
               "the next turn of the loop has it"),
    Equivalent(f"{GATEWAY}/listen.py", "self._query.utterance_end_ms / 1000", "self._query.utterance_end_ms / 1001",
               "a duration a thousandth shorter"),
    Equivalent(f"{GATEWAY}/audio.py", "SAMPLE_RATE_HZ * 120 // 1000", "SAMPLE_RATE_HZ - 120 // 1000",
               "a buffer with more room"),
    Equivalent(f"{GATEWAY}/usage_report.py", "random.uniform(0.5, 1.5)", "random.uniform( -0.5, 1.5)",
               "a pause that is drawn at random"),
    Equivalent(f"{AGENT}/tools.py", "name[:64]", "name[: 63]", LENGTH),
    Equivalent(f"{AGENT}/realtime.py", "secrets.token_hex(10)", "secrets.token_hex( 11)", "a longer random name"),
    Equivalent(f"{AGENT}/realtime.py", 'if status == "cancelled"', 'if status <= "cancelled"',
               "the other statuses, completed and failed, are greater"),
    Equivalent(f"{AGENT}/twilio.py", 'RefusedError(400, "bad request"', 'RefusedError( 399, "bad request"',
               "its socket is open, which is closed with 1008 for every status but 503"),
    Equivalent(f"{AGENT}/server.py", "DRAIN_POLL_INTERVAL_S = 0.1", "DRAIN_POLL_INTERVAL_S = 1.1",
               "a process that has drained ends a second later"),
    Equivalent(f"{AGENT}/server.py", "STOP_TIMEOUT_S = 5", "STOP_TIMEOUT_S = 6", "requests of this process are short"),
    Equivalent(f"{RUNTIME}/websocket.py", "self._paused_until = 0.0", "self._paused_until = 1.0",
               "the clock is above both"),
    Equivalent(f"{GATEWAY}/synthetic_call.py", '["alternatives"][0]', '["alternatives"][ -1]', "one alternative"),
    Equivalent(f"{RUNTIME}/journal.py", "now - before.until <=", "now % before.until <=",
               "the same until the clock has doubled since the last search"),
    *_each(f"{RUNTIME}/journal.py", "the interval is one second", ("2 * HOST_HEARTBEAT", "2 / HOST_HEARTBEAT"),
           ("2 * HOST_HEARTBEAT", "2 // HOST_HEARTBEAT")),
    *_each(f"{RUNTIME}/journal.py", "the commands are sent together, and each applies alone",
           ("=True) as pipe:\n            pipe.set", "=False) as pipe:\n            pipe.set"),
           ("=True) as pipe:\n            pipe.delete", "=False) as pipe:\n            pipe.delete"),
           ("=False) as pipe:\n            for ssrc, holder", "=True) as pipe:\n            for ssrc, holder"),
           ("=False) as pipe:\n            for ssrc, datagram", "=True) as pipe:\n            for ssrc, datagram")),
    *_each(f"{RUNTIME}/journal.py", "the store replies with a value for each key", ("strict=True", "strict=False")),
    *_each(f"{RUNTIME}/journal.py", "a hundred chunks of 4,096 less", ("approximate=True", "approximate=False")),
    Equivalent(f"{RUNTIME}/environment.py", "[:80]", "[: 79]", LENGTH),
    Equivalent(f"{ENGINE}/vllm_backend.py", "{answer.text[:200]}\")\n", "{answer.text[: 201]}\")\n", LENGTH),
    Equivalent(f"{ENGINE}/admission.py", FULL, FULL.replace("0.0", "-1.0"), "the clock is above both"),
    *_each(f"{ENGINE}/admission.py", "one refused session of 65,536",
           *(("SESSIONS = 65_536", f"SESSIONS = {number}") for number in (65535, 65537))),
    *_each(f"{ENGINE}/admission.py", "the clock is above both", ("(ssrc, 0.0) > now", "(ssrc, -1.0) > now")),
    *_each(f"{ENGINE}/admission.py", "the other position is at least 0", ("last_final else 0", "last_final else -1")),
    Equivalent(f"{ENGINE}/session_audio.py", "self.end_of_turn_s > 0", "self.end_of_turn_s != 0",
               "it is never below 0"),
    Equivalent(f"{TELEMETRY}/cloudwatch.py", "_BAD_REQUEST = 400", "_BAD_REQUEST = 399",
               "no answer that is an error has 399"),
    Equivalent(f"{TELEMETRY}/sources/gpu.py", "len(values) > 1", "len(values) != 1",
               "an empty list does not come here"),
    *(Equivalent(f"{TELEMETRY}/sources/neuron.py", f"{name}: int = 0", f"{name}: int = -1",
                 "a product below 0 counts as no core")
      for name in ("neuron_device_count", "neuroncore_per_device_count")),
    Equivalent(f"{TELEMETRY}/__main__.py", "_CLOUDWATCH_TIMEOUT_S = 5", "_CLOUDWATCH_TIMEOUT_S = 6",
               "a second more for an answer that does not come"),
    *_each(f"{GATEWAY}/server.py", "one more or less pending connection of 2,048",
           *(("backlog=2048", f"backlog= {number}") for number in (2047, 2049))),
    *_each(f"{GATEWAY}/listen_file.py", "a result is created for each channel", ("strict=True", "strict=False")),
    *_each(f"{GATEWAY}/listen_file.py", "another of several invalid parameters is named",
           ("include_input=False)[0]", "include_input=False)[ -1]")),
    *_each(f"{RUNTIME}/state.py", "one final of 20,000",
           *(("FINALS = 20_000", f"FINALS = {number}") for number in (19999, 20001))),
    *_each(f"{RUNTIME}/sessions.py", "the commands are sent together, and no reader needs both of their keys",
           ("=True) as pipe:\n            pipe.delete", "=False) as pipe:\n            pipe.delete")),
    *(Equivalent(f"{program}/__main__.py", '__name__ == "__main__"', '__name__ <= "__main__"',
                 "the name of the imported module is greater")
      for program in (AGENT, GATEWAY, ENGINE, TELEMETRY)),
    *_each(f"{AGENT}/chat.py", "a second more or less of two minutes",
           *(("BYTES = 120 *", f"BYTES = {number} *") for number in (119, 121))),
    *_each(f"{AGENT}/chat.py", "at the limit, a message of 20 ms more is removed",
           ("> MAX_QUESTION_BYTES", ">= MAX_QUESTION_BYTES")),
    *_each(f"{AGENT}/chat.py", "no role is greater than user",
           ('message["role"] == "user" and', 'message["role"] >= "user" and'),
           ('rest[0]["role"] == "user"', 'rest[0]["role"] >= "user"')),
    *_each(f"{AGENT}/chat.py", "it grows by one", ("(self._questions) >= MAX_AUDIO", "(self._questions) == MAX_AUDIO")),
    *_each(f"{AGENT}/conversation.py", "no role is greater than user",
           ('if message["role"] == "user"', 'if message["role"] >= "user"'),
           ('history[-1]["role"] == "user"', 'history[-1]["role"] >= "user"')),
    *_each(f"{AGENT}/conversation.py", "it is renewed more often",
           ("LEASE_S / 2", "LEASE_S // 2"), ("LEASE_S / 2", "LEASE_S % 2"), ("LEASE_S / 2", "LEASE_S / 3")),
    *_each(f"{AGENT}/conversation.py", "a list of one", ("processors[0]", "processors[ -1]")),
    *_each(f"{AGENT}/connections.py", "it is not used", *(("int = 1000", f"int = {code}") for code in (999, 1001))),
    *_each(f"{AGENT}/speech_to_text.py", "it is set when the connection opens",
           *(('pending_commits = 0\n        """', f'pending_commits = {number}\n        """') for number in (1, -1))),
    *_each(f"{AGENT}/speech_to_text.py", "a cancellation without a prepared answer is ignored",
           ('has_early_transcript = False\n        """', 'has_early_transcript = True\n        """'),
           ("transcript = False\n            await", "transcript = True\n            await")),
    *_each(f"{AGENT}/speech_to_text.py", "each transcript is that of a commit",
           ("max(0, self._pending", "max( -1, self._pending")),
    *_each(f"{AGENT}/interruptions.py", "it is set before it is read",
           ("speaking = False\n        self._has", "speaking = True\n        self._has"),
           *(('spoken_s = 0.0\n        """', f'spoken_s = {number}\n        """') for number in (1.0, -1.0))),
    *_each(f"{AGENT}/interruptions.py", "the number of bytes is even", ("(frame.audio) / 2", "(frame.audio) // 2")),
    *_each(f"{AGENT}/interruptions.py", "a message of 20 ms later", (">= MIN_INTERRUPTION_S", "> MIN_INTERRUPTION_S")),
    *_each(f"{AGENT}/interruptions.py", "it concerns sequences of 200 words", ("junk=False", "junk=True")),
    *_each(f"{AGENT}/memory.py", "a random name", *(("token_hex(8)", f"token_hex( {size})") for size in (7, 9))),
    *_each(f"{AGENT}/memory.py", "the lease is set first, and its previous holder writes no more",
           ("=True) as pipe:\n            pipe.set", "=False) as pipe:\n            pipe.set")),
    *_each(f"{AGENT}/memory.py", "multi() starts a transaction as well",
           ("=True) as pipe:\n            while", "=False) as pipe:\n            while")),
    *_each(f"{AGENT}/models.py", "no first state follows a pause",
           ("paused = False\n\n    async", "paused = True\n\n    async")),
    *_each(f"{AGENT}/models.py", "one call at a time", ("workers=1)", "workers= 2)")),
    *_each(f"{AGENT}/realtime.py", "a shorter random name", ("token_hex(10)", "token_hex( 9)")),
    *_each(f"{AGENT}/realtime.py", "the pipeline sets it before the first audio",
           *(("rate = 0\n", f"rate = {number}\n") for number in (1, -1))),
    *_each(f"{AGENT}/realtime.py", "half a sample", ("received_bytes = 0\n", "received_bytes = 1\n")),
    *_each(f"{AGENT}/realtime.py", "only the message is read",
           ("url=False", "url=True"), ("input=False", "input=True")),
    *_each(f"{AGENT}/realtime.py", "a tagged union has one error", ('[0]["msg"]', '[ -1]["msg"]')),
    *_each(f"{AGENT}/refusals.py", "no status is greater",
           ("status == HTTP_SERVICE_UNAVAILABLE else", "status >= HTTP_SERVICE_UNAVAILABLE else")),
    *_each(f"{AGENT}/server.py", "requests of this process are short", ("STOP_TIMEOUT_S = 5", "STOP_TIMEOUT_S = 4")),
    *_each(f"{AGENT}/server.py", "there are no more than the maximum",
           ("conversation_count >= self.settings", "conversation_count == self.settings")),
    *_each(f"{AGENT}/siblings.py", "no address is less", ("address == ALL_INTERFACES", "address <= ALL_INTERFACES")),
    *_each(f"{AGENT}/siblings.py", "the same order", ("** (1 /", "** ( 2 /")),
    *_each(f"{AGENT}/siblings.py", "nothing is sent to the port",
           ("port or 80", "port and 80"), ("port or 80", "port or 81"), ("port or 80", "port or 79")),
    *_each(f"{AGENT}/siblings.py", "a second later", ("RETRY_INTERVAL_S = 1.0", "RETRY_INTERVAL_S = 2.0")),
    *_each(f"{AGENT}/signing.py", "a random name", *(("token_hex(12)", f"token_hex( {size})") for size in (11, 13))),
    *_each(f"{AGENT}/speech_synthesis.py", "no sentence ends with its first character",
           ("end: int = 0", "end: int = 1")),
    *_each(f"{AGENT}/speech_synthesis.py", "no word is before 0", ("0.0, 0.0, None", "0.0, -1.0, None")),
    *_each(f"{AGENT}/speech_synthesis.py", LENGTH, *(("[:200]", f"[: {size}]") for size in (199, 201))),
    *_each(f"{AGENT}/tools.py", LENGTH, ("name[:64]", "name[: 65]")),
    *_each(f"{AGENT}/tools.py", "the timeout of the request itself is shorter",
           ("secs=2 * TOOL_REQUEST_TIMEOUT_S", "secs= 3 * TOOL_REQUEST_TIMEOUT_S"),
           ("secs=2 * TOOL_REQUEST_TIMEOUT_S", "secs=2 + TOOL_REQUEST_TIMEOUT_S")),
    *_each(f"{AGENT}/trace.py", "a nanosecond a second",
           *(("NS_PER_S = 1_000_000_000", f"NS_PER_S = {number}") for number in (1000000001, 999999999))),
    *_each(f"{AGENT}/trace.py", "its spans have been sent before", ("exit=False", "exit=True")),
    *_each(f"{AGENT}/twilio.py", "its socket is open, which is closed with 1008 for every status but 503",
           ('Error(400, "bad', 'Error( 401, "bad'),
           *(('Error(403, "foreign', f'Error( {status}, "foreign') for status in (402, 404))),
    *_each(f"{AGENT}/twilio.py", "no status is greater",
           ("status == HTTP_SERVICE_UNAVAILABLE", "status >= HTTP_SERVICE_UNAVAILABLE")),
    *_each(f"{AGENT}/usage.py", "the commands are sent together", ("transaction=True", "transaction=False")),
    *_each(f"{TELEMETRY}/__main__.py", "a second less for an answer that does not come",
           ("_CLOUDWATCH_TIMEOUT_S = 5", "_CLOUDWATCH_TIMEOUT_S = 4")),
    *_each(f"{TELEMETRY}/__main__.py", "both exist or neither",
           ("cloudwatch and publishing", "cloudwatch or publishing")),
    *_each(f"{TELEMETRY}/cloudwatch.py", "one value more or less of a batch", ("REQUEST = 1000", "REQUEST = 999")),
    *_each(f"{TELEMETRY}/cloudwatch.py", "one value of 36,000",
           *(("MAX_BUFFERED_VALUES = 36_000", f"MAX_BUFFERED_VALUES = {number}") for number in (35999, 36001))),
    *_each(f"{TELEMETRY}/cloudwatch.py", "an unknown status is no refusal",
           *(('Code", 0)', f'Code", {number})') for number in (1, -1))),
    *_each(f"{TELEMETRY}/cloudwatch.py", "no answer that is an error has 499", ("< 500  # noqa", "< 499  # noqa")),
    *_each(f"{TELEMETRY}/sources/dataplane.py", "an answer is much shorter",
           ("= 1 << 20", "= 2 << 20"), ("= 1 << 20", "= 1 << 21"), ("= 1 << 20", "= 1 << 19")),
    *_each(f"{TELEMETRY}/sources/dataplane.py", "the maximum of its elements", ("== SUSTAINED", ">= SUSTAINED")),
    *_each(f"{TELEMETRY}/sources/dataplane.py", LENGTH, *(("[:200]", f"[: {size}]") for size in (199, 201))),
    *_each(f"{TELEMETRY}/sources/engine.py", LENGTH, *(("[:100]", f"[: {size}]") for size in (99, 101))),
    *_each(f"{TELEMETRY}/sources/gpu.py", "no status is less", ("nvmlReturn == self", "nvmlReturn <= self")),
    *_each(f"{TELEMETRY}/sources/neuron.py", "a line is much shorter",
           *(("= 4 << 20", f"= {number}") for number in ("5 << 20", "3 << 20", "4 << 21", "4 << 19"))),
    *_each(f"{TELEMETRY}/sources/neuron.py", "a product with 0",
           *((f"{name}: int = 0", f"{name}: int = 1")
             for name in ("neuron_device_count", "neuroncore_per_device_count"))),
    *_each(f"{TELEMETRY}/sources/neuron.py", "no element less than none", ("max(0, cores", "max( -1, cores")),
    *_each(f"{TELEMETRY}/sources/neuron.py", "at this instant", ("> _MAX_DOCUMENT_AGE_S", ">= _MAX_DOCUMENT_AGE_S")),
    *_each(f"{TELEMETRY}/sources/nic.py", "a name has at most 15 characters", ("[:15]", "[: 16]")),
    Equivalent(f"{TELEMETRY}/sources/neuron.py", "now - self._latest[0] >", "now % self._latest[0] >",
               "the same until the clock has doubled since the last report"),
    *_each(f"{TELEMETRY}/sources/nic.py", "a field that the kernel writes",
           ("_GSSET_INFO, 0, 1", "_GSSET_INFO, 1, 1"),
           ("_STATS_STRING_SET_ID, 0)))[3]", "_STATS_STRING_SET_ID, 1)))[3]")),
    *_each(f"{TELEMETRY}/sources/nic.py", "as many values as names", ("strict=True", "strict=False")),
    *_each(f"{TELEMETRY}/sources/nic.py", "no destination is less", ('ion == "00', 'ion <= "00')),
    *_each(f"{GATEWAY}/rtp.py", "nothing is sent to the port",
           *(("address, 9)", f"address, {port})") for port in (8, 10))),
    *_each(f"{GATEWAY}/rtp.py", "a frame has an even number of samples", ("& 0xFFFFFFFF) //", "& 4294967294) //")),
    *_each(f"{GATEWAY}/audio.py", "a buffer with more room",
           ("* 120 // 1000", "* 121 // 1000"), ("* 120 // 1000", "* 120 // 999"), ("* 120 // 1000", "* 120 - 1000"),
           ("* 120 // 1000", "* 120 + 1000"), ("_HZ * 120 //", "_HZ + 120 //")),
    *_each(f"{GATEWAY}/audio.py", "the mean of one channel",
           *(("_channels > 1", f"_channels {other}") for other in ("!= 1", "> 0", ">= 1"))),
    *_each(f"{GATEWAY}/audio.py", "each negative size is that of the rest", ("reshape(-1,", "reshape(- 2,")),
    *_each(f"{GATEWAY}/audio.py", "a row that no byte selects",
           ("~np.arange(256", "~np.arange( 257"), ("= np.arange(256", "= np.arange( 257")),
    *(row
      for name in ("client_secrets", "realtime")
      for row in _each(f"{GATEWAY}/{name}.py", "only the message and the field's name are read",
                       ("include_url=False", "include_url=True"), ("include_input=False", "include_input=True"))),
    *_each(f"{GATEWAY}/realtime.py", "a random name",
           *(("token_hex(10)", f"token_hex( {size})") for size in (9, 11))),
    *_each(f"{GATEWAY}/client_secrets.py", "no field's name is greater",
           ('field == "session.type"', 'field >= "session.type"')),
    *_each(f"{GATEWAY}/client_socket.py", "no kind is greater",
           ("kind is EventKind.SPEECH_STOPPED", "kind >= EventKind.SPEECH_STOPPED")),
    *_each(f"{GATEWAY}/client_socket.py", "no kind is less",
           ("kind is EventKind.END", "kind <= EventKind.END")),
    *_each(f"{GATEWAY}/client_socket.py", "the other type, websocket.receive, is greater",
           *((f'{message}["type"] == "websocket.disconnect"', f'{message}["type"] <= "websocket.disconnect"')
             for message in ("= message", "receive())"))),
    *_each(f"{GATEWAY}/event_stream.py", "no kind is less", ("kind is EventKind.END", "kind <= EventKind.END")),
    *_each(f"{GATEWAY}/latencies.py", "no kind is greater",
           ("kind is EventKind.SPEECH_STOPPED", "kind >= EventKind.SPEECH_STOPPED")),
    *_each(f"{GATEWAY}/realtime.py", "no kind is greater",
           ("kind is EventKind.SPEECH_STOPPED", "kind >= EventKind.SPEECH_STOPPED")),
    *_each(f"{GATEWAY}/realtime.py", "an item without text is created before its first text",
           ("kind is EventKind.PARTIAL", "kind >= EventKind.PARTIAL")),
    *_each(f"{GATEWAY}/realtime.py", "no other type is greater",
           ('event.type == "input_audio_buffer.commit"', 'event.type >= "input_audio_buffer.commit"'),
           ('name == "turn_detection"', 'name >= "turn_detection"'),
           ("encoding is Encoding.PCM16", "encoding >= Encoding.PCM16")),
    *_each(f"{GATEWAY}/realtime.py", "the end is not before the begin", ("if end > begin", "if end != begin")),
    *_each(f"{GATEWAY}/traces.py", "it is set before it is used",
           *(("trace_id = 0", f"trace_id = {number}") for number in (1, -1))),
    *_each(f"{GATEWAY}/traces.py", "its spans have been sent before", ("exit=False", "exit=True")),
    *_each(f"{GATEWAY}/transcript_routes.py", "no other format is greater", ('form == "vtt"', 'form >= "vtt"')),
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
