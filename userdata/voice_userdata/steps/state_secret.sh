# shellcheck shell=bash
# Stores Valkey's address and password: the password passes from Secrets Manager through pipes into files in memory, and
# is in no variable, argument or log.

# A store restored from a snapshot has another name. Containers mount the folder, and so see the newest file.
fetch_host() {
  aws ssm get-parameter --name "$STATE_HOST" --query Parameter.Value --output text >"$RUN/host" &&
    install -D -m 0644 "$RUN/host" "$RUN/state/host"
}

fetch_secret() {
  aws secretsmanager get-secret-value --secret-id "$SECRET" --query SecretString --output text |
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]], end="")' "$SECRET_FIELD" >"$RUN/fetched"
}

# Writes to the containers' files in place, which programs read at every connect; the files are never empty, because all
# passwords have the same length.
reread_state() {
  local name
  fetch_host || true
  fetch_secret || return 0
  for name in "${CONTAINERS[@]}"; do cat "$RUN/fetched" 1<>"$RUN/secrets/$name"; done
  rm "$RUN/fetched"
}

# A copy for each container, owned by its user.
state_secret() {
  local name
  retry 5 fetch_host || fail "cannot read $STATE_HOST"
  retry 5 fetch_secret && [[ -s $RUN/fetched ]] || fail "cannot read $SECRET_FIELD of $SECRET"
  for name in "${CONTAINERS[@]}"; do
    install -D -m 0600 -o "${RUN_AS[$name]}" "$RUN/fetched" "$RUN/secrets/$name"
  done
  rm "$RUN/fetched"
}
