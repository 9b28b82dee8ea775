# shellcheck shell=bash
# shellcheck disable=SC2034 # lifecycle.sh reads waited
# Watches for the end of the host, and lets the containers finish their sessions before it.

# Telemetry is the last of the containers, and ends last: a drain that nobody sees looks like a host that is gone.
SERVING=("${UNITS[@]:0:${#UNITS[@]} > 1 ? ${#UNITS[@]} - 1 : 1}")

# `docker stop` holds a unit in "deactivating" until its container has ended.
still_running() {
  (systemctl is-active "${SERVING[@]}" || true) | grep -qvxE 'inactive|failed'
}

# drain BUDGET_S
drain() {
  local waited=0
  [[ -e $RUN/serving ]] || return 0
  log "draining for at most $1 s"
  [[ -z $TARGET_GROUP ]] || retry 3 target deregister-targets || true
  systemctl stop --no-block "${SERVING[@]}"
  while still_running && ((waited < $1)); do pause "$TERMINATE_HOOK"; done
  systemctl stop --no-block "${UNITS[@]}"
  rm "$RUN/serving"
  log "drained in $waited s"
}

leave() {
  drain "$DRAIN_BUDGET_S"
  answer "$TERMINATE_HOOK" CONTINUE || log "$TERMINATE_HOOK was not answered"
}

# EC2 sees nothing of an engine that has lost its accelerator: it starts for ever, and its host counts as capacity. A
# program that has crashed may take as long to be ready again as at its first start, and no longer.
give_up_if_dead() {
  local unit
  [[ -e $RUN/serving ]] || return 0
  for unit in "${SERVING[@]}"; do
    ! is_ready "${unit#*@}" || continue
    ((unready += 5))
    ((unready >= READY_BUDGET_S)) || return 0
    log "${unit#*@} has not been ready for $unready s"
    drain "$DRAIN_BUDGET_S"
    retry 5 unhealthy || true
    return
  done
  unready=0
}

watch() {
  local unready=0 polls=0
  while :; do
    # A password that was rotated, or a store that was restored, is taken up within five minutes.
    ((++polls % 60)) || reread_state
    case $(metadata autoscaling/target-lifecycle-state || true) in
      *Terminated)
        leave
        return
        ;;
      # Back into the warm pool, where the group reuses hosts.
      Warmed:*) [[ ! -e $RUN/serving ]] || leave ;;
      # Out of a warm pool of running hosts: no boot comes.
      InService)
        if [[ -e $RUN/warm ]]; then
          rm "$RUN/warm"
          systemctl restart --no-block voice-host
        fi
        ;;
    esac
    # Two minutes from the notice to the end, of which a poll and a margin are gone.
    ! metadata spot/instance-action >/dev/null || drain $((DRAIN_BUDGET_S < 100 ? DRAIN_BUDGET_S : 100))
    give_up_if_dead
    sleep 5
  done
}
