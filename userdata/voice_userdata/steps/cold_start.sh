# shellcheck shell=bash
# Records the duration of a start's phases for telemetry: "PHASE SECONDS" per line.

PHASES=$RUN/cold-start/phases

before_pull() {
  install -d -m 0755 "${PHASES%/*}"
  install -m 0644 /dev/null "$PHASES"
  PULL_STARTED=$(date +%s)
}

after_pull() {
  echo "pull $(($(date +%s) - PULL_STARTED))" >>"$PHASES"
}

# phases SECONDS: from the start of the containers until they were ready. The engine's log reports its own phases
# (Docker keeps a copy of what goes to CloudWatch), the slowest of several processes counts; the rest is warm-up.
phases() {
  docker logs "$STARTING" 2>&1 | awk -v "texts=$START_LOG" -v "total=$1" '
    BEGIN { count = split(texts, text, "|") }
    {
      for (i = 1; i <= count; i++) {
        split(text[i], pair, "=")
        at = index($0, pair[2])
        seconds = substr($0, at + length(pair[2])) + 0
        if (at && seconds > took[pair[1]]) took[pair[1]] = seconds
      }
    }
    END {
      for (phase in took) { print phase, took[phase]; total -= took[phase] }
      print "warm-up", (total > 0 ? total : 0)
    }' >>"$PHASES" || log 'the phases of the start are unknown'
}
