# shellcheck shell=bash
# User data runs once in a host's life. It installs itself as a systemd unit, which does the rest at every boot.

# unit NAME LINE...
unit() (
  umask 022
  printf '%s\n' "${@:2}" >"$ROOT/etc/systemd/system/voice-$1.service"
)

install_self() {
  install -D -m 0700 "${BASH_SOURCE[0]}" "$ROOT$SELF"
  unit host '[Unit]' Wants=network-online.target After=network-online.target '[Service]' "ExecStart=$SELF boot" Restart=on-abnormal \
    '[Install]' WantedBy=multi-user.target
  unit container@ '[Unit]' After=docker.service '[Service]' 'ExecStartPre=-docker rm -f %i' \
    "ExecStart=$SELF run %i" "ExecStop=docker stop -t $DRAIN_BUDGET_S %i" \
    "TimeoutStopSec=$((DRAIN_BUDGET_S + 30))" Restart=always RestartSec=3
  systemctl daemon-reload
  # Without waiting, since the unit may be ordered after cloud-init, which runs this script.
  systemctl enable --now --no-block voice-host
}

# tell REASON: writes to the host's stream of the log group
tell() {
  local at=(--log-group-name "$LOG_GROUP" --log-stream-name "$TIER/host/$INSTANCE_ID")
  aws logs create-log-stream "${at[@]}"
  aws logs put-log-events "${at[@]}" \
    --log-events "timestamp=$(date +%s000),message=FAILED ${1//[^[:alnum:] .:@\/_-]/ }"
}

# If no hook waits for an answer, report the host as unhealthy to Auto Scaling. AWS may be unreachable at first, so this
# repeats until it succeeds.
on_exit() {
  local status=$? reason
  ((status)) || return 0
  set +e
  trap - ERR
  note_failure "exit status $status"
  reason=$(<"$RUN/failure")
  log "FAILED: $reason"
  INSTANCE_ID=${INSTANCE_ID:-$(metadata instance-id)}
  retry 3 tell "$reason"
  answer "$LAUNCH_HOOK" ABANDON && return 0
  # The metadata service may be unreachable as well.
  until INSTANCE_ID=${INSTANCE_ID:-$(metadata instance-id)} && unhealthy; do
    log 'Auto Scaling is unreachable: next try in 30 s'
    sleep 30
  done
}

boot() {
  local state
  rm -f "$RUN/failure" "$RUN/warm"
  identify
  for STEP in "${BOOT_STEPS[@]}"; do
    log "$STEP"
    $STEP
  done
  STEP=serve
  state=$(retry 5 metadata autoscaling/target-lifecycle-state) || fail 'not in an Auto Scaling group'
  case $state in
    *Terminated) ;;
    Warmed:*) touch "$RUN/warm" ;;
    *) serve ;;
  esac
  answer "$LAUNCH_HOOK" CONTINUE || (($? == 2)) || fail "$LAUNCH_HOOK was not completed"
  # The host is in service now, so the end of this process must not replace it.
  trap - EXIT ERR
  watch
}

main() {
  case ${1-} in
    run) "$@" ;;
    *)
      trap on_exit EXIT
      trap 'note_failure "$BASH_COMMAND"' ERR
      "${1:-install_self}"
      ;;
  esac
}
