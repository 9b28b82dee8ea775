# shellcheck shell=bash
# Completes lifecycle actions: a host enters service once its containers are ready, and is abandoned if they fail.

UNITS=("${CONTAINERS[@]/#/voice-container@}")

# on_hook COMMAND HOOK [OPTION...]
on_hook() {
  aws autoscaling "$1" --auto-scaling-group-name "$GROUP" --instance-id "$INSTANCE_ID" \
    --lifecycle-hook-name "$2" "${@:3}" 2>&1
}

heartbeat() {
  on_hook record-lifecycle-action-heartbeat "$1" >/dev/null || log "cannot send a heartbeat for $1"
}

# answer HOOK RESULT; 2 if nothing waits for an answer, as after a reboot in service
answer() {
  local try output
  for try in 1 2 3 4 5; do
    if output=$(on_hook complete-lifecycle-action "$1" --lifecycle-action-result "$2"); then
      log "$1: $2"
      # Not a bare "return": in a trap, that returns the status from before the trap.
      return 0
    fi
    [[ $output != *'No active Lifecycle Action'* ]] || return 2
    log "$1: $output"
    sleep $((2 ** try))
  done
  return 1
}

# Ignores the grace period, which would keep a host that fails in its first minutes.
unhealthy() {
  aws autoscaling set-instance-health --instance-id "$INSTANCE_ID" --health-status Unhealthy --no-should-respect-grace-period
}

# pause HOOK: one poll; the caller counts the seconds in `waited`
pause() {
  sleep 5
  ((waited += 5))
  ((waited % HEARTBEAT_EVERY_S)) || heartbeat "$1"
}

# is_ready NAME: 1 while nothing listens, as during a start; 2 if it accepts connections but does not work.
is_ready() (
  at=${HEALTH_PORT[$1]-}
  if [[ -z $at ]]; then
    [[ $(docker inspect -f '{{.State.Health.Status}}' "$1") == healthy ]]
    exit
  fi
  exec 3<>"/dev/tcp/127.0.0.1/${at%%/*}" || exit 1
  [[ $at == */* ]] || exit 0
  printf 'GET /%s HTTP/1.0\r\n\r\n' "${at#*/}" >&3
  read -r -t 2 at <&3 && [[ $at == *' 200 '* ]] || exit 2
) 2>/dev/null

# The last output of a container: Docker's own messages about a failed start are in no log group. By the unit's name
# systemd's lines would be included: three of them report a restart.
last_words() {
  local words
  words=$(journalctl -q --no-pager -o cat -n 5 "_SYSTEMD_UNIT=voice-container@$1.service") || true
  [[ -z $words ]] || echo "; $words"
}

# Docker exits with 125 to 127 if it cannot start a container or its command; another attempt would fail as well.
cannot_start() {
  local status tries
  status=$(systemctl show -P ExecMainStatus "voice-container@$1")
  tries=$(systemctl show -P NRestarts "voice-container@$1")
  ((status >= 125 && status <= 127 && tries >= 5))
}

serve() {
  local waited=0 name late
  touch "$RUN/serving"
  systemctl start --no-block "${UNITS[@]}"
  while :; do
    late=
    for name in "${CONTAINERS[@]}"; do
      is_ready "$name" && continue
      late+=" $name"
      ! cannot_start "$name" || fail "$name cannot be started$(last_words "$name")"
    done
    [[ -n $late ]] || break
    ((waited < READY_BUDGET_S)) || fail "not ready after $READY_BUDGET_S s:$late$(for name in $late; do last_words "$name"; done)"
    pause "$LAUNCH_HOOK"
  done
  [[ -z $STARTING ]] || phases "$waited"
  [[ -z $TARGET_GROUP ]] || retry 5 target register-targets || fail "cannot register with $TARGET_GROUP"
}
