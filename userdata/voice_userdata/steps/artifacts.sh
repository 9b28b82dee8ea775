# shellcheck shell=bash
# Downloads weights and compiled programs that the fleet's job has stored in the bucket: a host needs no hub and
# compiles nothing.

artifacts() {
  heartbeat "$LAUNCH_HOOK"
  retry 3 aws s3 cp --only-show-errors "$ARTIFACTS/complete" "$RUN/artifacts" ||
    fail "$ARTIFACTS is not complete: run the artifacts job of the fleet"
  retry 5 aws s3 sync --only-show-errors "$ARTIFACTS" "$ROOT$ARTIFACTS_DIR" || fail "cannot download $ARTIFACTS"
  chown -R "$ARTIFACTS_USER" "$ROOT$ARTIFACTS_DIR" || fail "cannot change the owner of $ARTIFACTS_DIR"
}
