# shellcheck shell=bash
# Where Valkey is, and its password: that goes from Secrets Manager through pipes into files in memory, and no variable,
# argument or log has it.

# A store that is restored from a snapshot has another name. Containers have the folder, and so the newest file.
fetch_host() {
  aws ssm get-parameter --name "$STATE_HOST" --query Parameter.Value --output text >"$RUN/host" &&
    install -D -m 0644 "$RUN/host" "$RUN/state/host"
}

fetch_secret() {
  aws secretsmanager get-secret-value --secret-id "$SECRET" --query SecretString --output text |
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]], end="")' "$SECRET_FIELD" >"$RUN/fetched"
}

# Into the files that containers have, which programs read whenever they connect; never empty meanwhile: all passwords
# are equally long.
reread_state() {
  local name
  fetch_host || true
  fetch_secret || return 0
  for name in "${CONTAINERS[@]}"; do cat "$RUN/fetched" 1<>"$RUN/secrets/$name"; done
  rm "$RUN/fetched"
}

# A copy for each container, owned by the user that it runs as.
state_secret() {
  local name
  retry 5 fetch_host || fail "cannot read $STATE_HOST"
  retry 5 fetch_secret && [[ -s $RUN/fetched ]] || fail "cannot read $SECRET_FIELD of $SECRET"
  for name in "${CONTAINERS[@]}"; do
    install -D -m 0600 -o "${RUN_AS[$name]}" "$RUN/fetched" "$RUN/secrets/$name"
  done
  rm "$RUN/fetched"
}
