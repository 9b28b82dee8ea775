# shellcheck shell=bash
# Writes the input of `run NAME`, in memory and only for root: environment and `docker run` arguments, one per line.

environment_of() {
  printf '%s\n' "$COMMON" "VOICE_HOST=$INSTANCE_ID" "VOICE_HOST_ADDRESS=$HOST_ADDRESS" \
    "VOICE_ZONE=$ZONE" "VOICE_INTERFACE=$INTERFACE" VOICE_VALKEY_HOST_FILE=/run/state/host \
    VOICE_VALKEY_PASSWORD_FILE=/run/secrets/valkey-password "${ENVIRONMENT[$1]-}"
}

# Non-blocking logs: a slow CloudWatch must not stall audio.
arguments_of() {
  printf '%s\n' --rm "--name=$1" --network=host --read-only --tmpfs=/tmp --cap-drop=ALL \
    --security-opt=no-new-privileges "--user=${RUN_AS[$1]}" "--env-file=$RUN/$1.env" \
    "--volume=$RUN/state:/run/state:ro" \
    "--volume=$RUN/secrets/$1:/run/secrets/valkey-password:ro" --log-driver=awslogs --log-opt=mode=non-blocking \
    "--log-opt=awslogs-region=$REGION" "--log-opt=awslogs-group=$LOG_GROUP" \
    "--log-opt=awslogs-stream=$TIER/$1/$INSTANCE_ID" ${OPTIONS[$1]+"${OPTIONS[$1]}"}
  [[ -z ${HARDWARE[$1]-} || ${#DEVICES[@]} == 0 ]] || printf -- '--device=%s\n' "${DEVICES[@]}"
  printf '%s\n' "${IMAGE[$1]}" ${COMMAND[$1]+"${COMMAND[$1]}"}
}

containers() {
  local name directory
  for name in "${CONTAINERS[@]}"; do
    for directory in ${WRITABLE[$name]-}; do
      install -d -o "${RUN_AS[$name]}" "$ROOT$directory"
    done
    environment_of "$name" >"$RUN/$name.env"
    arguments_of "$name" >"$RUN/$name.arguments"
  done
}

# In the foreground: systemd restarts it when it ends.
run() {
  local arguments
  mapfile -t arguments <"$RUN/$1.arguments"
  exec docker run "${arguments[@]}"
}
