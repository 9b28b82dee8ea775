# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153,SC2154 # images.sh reads LAUNCH_HOOK; the renderer sets what is read here
# The fleet's preparation job, on a host of the fleet's own type: the engine fetches its weights and compiles, and the
# result is uploaded to the bucket. The marker is uploaded last: without it, hosts download nothing.

LAUNCH_HOOK=''
heartbeat() { :; }

# Hugging Face's cache stores files and links to them; the links are read, and arrive as files.
prepare() {
  local arguments=(--rm --network=host "--user=$ARTIFACTS_USER" "--env-file=$RUN/prepare.env"
    "--volume=$ROOT$ARTIFACTS_DIR:$MOUNTED_AT")
  install -d -o "$ARTIFACTS_USER" "$ROOT$ARTIFACTS_DIR"
  echo "$ENVIRONMENT" >"$RUN/prepare.env"
  [[ -z ${SHARED_MEMORY_MIB-} ]] || arguments+=("--shm-size=${SHARED_MEMORY_MIB}m")
  [[ -z ${GPUS-} ]] || arguments+=(--gpus=all)
  arguments+=("${DEVICES[@]/#/--device=}")
  docker run "${arguments[@]}" "${IMAGE[$CONTAINERS]}" "${COMMAND[@]}" || fail "$CONTAINERS cannot prepare its model"
  retry 3 aws s3 sync --only-show-errors --exclude '*/blobs/*' --exclude '*.lock' "$ROOT$ARTIFACTS_DIR" "$ARTIFACTS" ||
    fail "cannot write $ARTIFACTS"
  echo complete >"$RUN/complete"
  retry 3 aws s3 cp --only-show-errors "$RUN/complete" "$ARTIFACTS/complete" || fail "cannot write $ARTIFACTS/complete"
  log "$ARTIFACTS is complete"
}

# The host terminates with the job: its shutdown behavior is termination.
main() {
  trap 'status=$?; ((status == 0)) || log "FAILED: $(<"$RUN/failure")"; systemctl poweroff' EXIT
  trap 'note_failure "$BASH_COMMAND"' ERR
  for STEP in "${STEPS[@]}"; do
    log "$STEP"
    $STEP
  done
}
