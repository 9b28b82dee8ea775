# shellcheck shell=bash
# shellcheck disable=SC2034 # lifecycle.sh reads waited
# Detects the end of the host, and lets the containers finish their sessions first.

# Telemetry is the last container, and stops last: a drain without metrics would look like a lost host.
SERVING=("${UNITS[@]:0:${#UNITS[@]} > 1 ? ${#UNITS[@]} - 1 : 1}")

# A hanging container does not recover; its sessions have moved to other hosts long before.
HUNG_S=300

# `docker stop` holds a unit in "deactivating" until its container has ended.
still_running() {
  [[ ! $(systemctl is-active "$1" || true) =~ ^(inactive|failed)$ ]]
}

# drain BUDGET_S
drain() {
  local waited=0 unit
  [[ -e $RUN/serving ]] || return 0
  log "draining for at most $1 s"
  [[ -z $TARGET_GROUP ]] || retry 3 target deregister-targets || true
  # In the order of requests: vLLM rejects new ones as soon as it receives SIGTERM, and our engine sends requests to it until the
  # last session has ended.
  for unit in "${SERVING[@]}"; do
    systemctl stop --no-block "$unit"
    while still_running "$unit" && ((waited < $1)); do pause "$TERMINATE_HOOK"; done
  done
  systemctl stop --no-block "${UNITS[@]}"
  rm "$RUN/serving"
  log "drained in $waited s"
}

leave() {
  drain "$DRAIN_BUDGET_S"
  answer "$TERMINATE_HOOK" CONTINUE || log "$TERMINATE_HOOK was not completed"
}

# EC2 does not notice that an engine has lost its accelerator: it restarts forever, and its host counts as capacity. A
# crashed program may take as long to become ready as at its first start, and no longer.
give_up_if_dead() {
  local unit status dead='' budget=$HUNG_S
  [[ -e $RUN/serving ]] || return 0
  for unit in "${SERVING[@]}"; do
    status=0
    is_ready "${unit#*@}" || status=$?
    ((status)) || continue
    dead+=" ${unit#*@}"
    ((status == 2)) || budget=$READY_BUDGET_S
  done
  unready=$((${#dead} ? unready + 5 : 0))
  ((unready && unready >= budget)) || return 0
  log "not ready for $unready s:$dead"
  drain "$DRAIN_BUDGET_S"
  retry 5 unhealthy || unreported=yes
}

watch() {
  local unready=0 polls=0 unreported=
  while :; do
    # A rotated password, or a restored store, is noticed within five minutes.
    ((++polls % 60)) || reread_state
    case $(metadata autoscaling/target-lifecycle-state || true) in
      *Terminated)
        leave
        return
        ;;
      # Back to the warm pool, where the group reuses hosts.
      Warmed:*) [[ ! -e $RUN/serving ]] || leave ;;
      # From a warm pool of running hosts, without a boot.
      InService)
        if [[ -e $RUN/warm ]]; then
          rm "$RUN/warm"
          systemctl restart --no-block voice-host
        fi
        ;;
    esac
    # Two minutes from the notice to the end, minus a poll and a margin.
    ! metadata spot/instance-action >/dev/null || drain $((DRAIN_BUDGET_S < 100 ? DRAIN_BUDGET_S : 100))
    give_up_if_dead
    # Every 30 s, as AWS may be unreachable for longer than the first attempts take.
    [[ -z $unreported ]] || ((polls % 6)) || ! unhealthy || unreported=
    sleep 5
  done
}
