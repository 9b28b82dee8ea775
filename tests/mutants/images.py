"""Formerly undetected mistakes in programs of images, in permissions of hosts, and in admission limits.

Mutants of admission limits revert a fix, so that unauthenticated clients affect callers.
"""

from tests.mutants.named import Named

GATEWAY = "images/gateway/src/voice_gateway"
CONSTRUCTS = "constructs/voice_constructs/aws"
SESSION_API = "images/gateway/tests/test_session_api.py"
FILES = "images/gateway/tests/test_transcriptions.py"
PERMISSIONS = ("tests/userdata/test_permissions.py",)
AGENT = "images/agent/src/voice_agent"
ENGINE = "images/whisper-engine/src/voice_whisper"
RUNTIME = "images/runtime/src/voice_runtime"
GATEWAY_LIMITS = "images/gateway/tests/test_strangers.py"
AGENT_HEADS = "images/agent/tests/test_strangers.py::test_incomplete_heads_time_out_and_idle_connections_are_limited"
AGENT_LIMITS = "images/agent/tests/test_strangers.py"
ENGINE_LIMITS = "images/whisper-engine/tests/test_admission.py"
OWNERS = "images/agent/tests/test_ownership.py"

IMAGE_MUTANTS = (
    Named("a token opens a later session with the same number", f"{GATEWAY}/gateway.py",
          "session is None or session.id != session_id", "session is None",
          (f"{SESSION_API}::test_session_requires_its_own_token",)),
    Named("a limit of creations that requests renew", f"{GATEWAY}/session_routes.py",
          "pipe.expire(key, 1, nx=True)", "pipe.expire(key, 1)",
          (f"{SESSION_API}::test_a_caller_above_its_rate_still_gets_its_share",)),
    Named("decoders inherit the gateway's secrets", f"{GATEWAY}/decoder_process.py",
          'env={"PYTHONPATH"', 'env={**os.environ, "PYTHONPATH"', (f"{FILES}::test_decoder_inherits_no_secret",)),
    Named("decoders open what files name", f"{GATEWAY}/decode.py",
          ', "protocol_whitelist": "none"', "", (f"{FILES}::test_file_cannot_reference_other_files",)),
    Named("hosts decrypt secrets by themselves", f"{CONSTRUCTS}/host.py",
          "[props.secret_encryption_key.key_arn], via_secrets_manager",
          "[props.secret_encryption_key.key_arn]", PERMISSIONS),
    Named("hosts decrypt objects by themselves", f"{CONSTRUCTS}/artifacts.py",
          "self.key.key_arn, via_s3)", "self.key.key_arn, None)", PERMISSIONS),
    # Finding 1: resources acquired before a caller is authenticated
    Named("slots for silent sockets", f"{AGENT}/server.py",
          "            async with await self._authenticate(caller_connection) as caller:\n"
          "                with self.reserve_slot():\n",
          "            with self.reserve_slot():\n"
          "                async with await self._authenticate(caller_connection) as caller:\n",
          (f"{AGENT_LIMITS}::test_silent_sockets_use_no_slot",)),
    Named("connections for unknown keys", f"{GATEWAY}/client_socket.py",
          "            await cls._serve(gateway, websocket)\n",
          "            with gateway.connection():\n                await cls._serve(gateway, websocket)\n",
          (f"{GATEWAY_LIMITS}::test_unknown_keys_use_no_connections",)),
    Named("places for slow uploads", f"{GATEWAY}/transcriptions.py",
          "        options, file = await _read_form(request, resources)\n",
          "        await resources.enter_async_context(reserve_decoding_slot(gateway))\n"
          "        options, file = await _read_form(request, resources)\n",
          (f"{GATEWAY_LIMITS}::test_slow_uploads_use_no_slot",)),
    Named("the engine's look-ups in one queue for all addresses", f"{ENGINE}/admission.py",
          "self._unknown.add(ssrc, source)", 'self._unknown.add(ssrc, "")',
          (f"{ENGINE_LIMITS}::test_pending_look_ups_do_not_delay_callers",
           f"{ENGINE_LIMITS}::test_unknown_sessions_do_not_delay_rejections_at_a_full_host")),
    Named("room for any number of idle connections", f"{RUNTIME}/http.py",
          "        if removed is not None:\n", "        if False:\n",
          ("images/runtime/tests/test_http.py",)),
    # Finding 2: slow request heads
    Named("a deadline for the first head alone", f"{RUNTIME}/http.py",
          "if has_begun and self._timer is None:", "if False:",
          (f"{GATEWAY_LIMITS}::test_incomplete_head_times_out", AGENT_HEADS)),
    Named("clients that read no answer keep their connections", f"{RUNTIME}/websocket.py",
          "            self.transport.abort()\n        else:\n", "            pass\n        else:\n",
          ("images/runtime/tests/test_http.py",)),
    Named("requests that come together keep the loop for themselves", f"{RUNTIME}/http.py",
          "ASSUMED_REQUEST_CPU_S = 0.001", "ASSUMED_REQUEST_CPU_S = 0.0", ("images/runtime/tests/test_http.py",)),
    Named("any number of clients that read no answer", f"{RUNTIME}/http.py",
          "        super().pause_writing()\n        self._start_waiting()\n", "        super().pause_writing()\n",
          ("images/runtime/tests/test_http.py",)),
    # Findings 3 and 4: ownership of conversations
    Named("a conversation for each caller with its token", f"{AGENT}/connections.py",
          "if self.conversation and self._find_token_owner() != caller:", "if False:", (OWNERS,)),
    Named("a call's name is its key", f"{AGENT}/twilio.py",
          "json.dumps([caller, self._call_id])", "json.dumps([self._call_id])", (OWNERS,)),
    Named("tools are called unsigned", f"{AGENT}/tools.py", "**create_signature_headers(self._key, body)", "",
          ("images/agent/tests/test_tools.py",)),
    Named("any tool that the model names", f"{AGENT}/tools.py", "if name not in self._names:", "if False:",
          ("images/agent/tests/test_tools.py",)),
    # 5 and 6
    Named("a known key waits for the issuer", f"{GATEWAY}/callers.py",
          "if key_id not in self._keys and self._reload:", "if self._reload:",
          ("images/gateway/tests/test_callers.py::test_an_unknown_key_delays_no_caller_with_a_known_one",)),
    Named("frames keep the loop for themselves", f"{RUNTIME}/websocket.py",
          "MAX_SLICE_BYTES = 4096", "MAX_SLICE_BYTES = 1 << 30",
          (f"{GATEWAY_LIMITS}::test_endless_frames_do_not_block_the_event_loop",
           f"{AGENT_LIMITS}::test_a_caller_is_served_despite_unauthenticated_connections")),
    Named("upgrades that cannot be read stay open", f"{RUNTIME}/websocket.py",
          "self._refuse_malformed_request()", "pass",
          (f"{GATEWAY_LIMITS}::test_invalid_upgrades_are_rejected_and_closed",)),
    Named("chunks keep the loop for themselves", f"{RUNTIME}/http.py",
          "MAX_CPU_S_BEFORE_PAUSE = 0.005", "MAX_CPU_S_BEFORE_PAUSE = 1e9",
          (f"{GATEWAY_LIMITS}::test_endless_chunks_do_not_block_the_event_loop",)),
    Named("pages of any origin", f"{RUNTIME}/origins.py",
          "if is_local_host(host) and not is_local_host(page):", "if False:",
          (f"{GATEWAY_LIMITS}::test_web_pages_are_rejected_if_callers_need_no_key",)),
    Named("any name of this machine", f"{RUNTIME}/origins.py",
          "if is_local_host(server_address) and not is_local_host(host):", "if False:",
          (f"{GATEWAY_LIMITS}::test_web_pages_are_rejected_if_callers_need_no_key",)),
)  # fmt: skip
