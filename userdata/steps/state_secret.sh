# shellcheck shell=bash
# Valkey's password goes from Secrets Manager through pipes into files in memory: no variable, argument or log has it.

fetch_secret() {
  aws secretsmanager get-secret-value --secret-id "$SECRET" --query SecretString --output text |
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]], end="")' "$SECRET_FIELD" >"$RUN/fetched"
}

# Into the files that containers have, which programs read whenever they connect; never empty meanwhile: all passwords
# are equally long.
reread_secret() {
  local name
  fetch_secret || return 0
  for name in "${CONTAINERS[@]}"; do cat "$RUN/fetched" 1<>"$RUN/secrets/$name"; done
  rm "$RUN/fetched"
}

# A copy for each container, owned by the user that it runs as.
state_secret() {
  local name
  retry 5 fetch_secret && [[ -s $RUN/fetched ]] || fail "cannot read $SECRET_FIELD of $SECRET"
  for name in "${CONTAINERS[@]}"; do
    install -D -m 0600 -o "${RUN_AS[$name]}" "$RUN/fetched" "$RUN/secrets/$name"
  done
  rm "$RUN/fetched"
}
