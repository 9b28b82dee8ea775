# shellcheck shell=bash
# Weights and compiled programs as the fleet's job has left them in the bucket: a host asks no hub and compiles nothing.

artifacts() {
  heartbeat "$LAUNCH_HOOK"
  retry 3 aws s3 cp --only-show-errors "$ARTIFACTS/complete" "$RUN/artifacts" ||
    fail "$ARTIFACTS is not complete: run the job of the fleet"
  retry 5 aws s3 sync --only-show-errors "$ARTIFACTS" "$ROOT$ARTIFACTS_DIR" || fail "cannot fetch $ARTIFACTS"
  chown -R "$ARTIFACTS_USER" "$ROOT$ARTIFACTS_DIR" || fail "cannot hand $ARTIFACTS_DIR over"
}
