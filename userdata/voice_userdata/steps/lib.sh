# shellcheck shell=bash
# shellcheck disable=SC2034 # the other steps read these variables
# Shared by all steps: paths, log, metadata, retries. With VOICE_ROOT, tests run the script in another root.

ROOT=${VOICE_ROOT:-}
RUN=$ROOT/run/voice
SELF=/usr/local/sbin/voice-host
STEP=start
PATH=$PATH:$ROOT/opt/aws/neuron/bin
export AWS_DEFAULT_REGION=$REGION DOCKER_CONFIG=$RUN/docker
# The AWS CLI requests its credentials once, with a time-out of a second: too short for a host that is busy starting.
export AWS_METADATA_SERVICE_TIMEOUT=5 AWS_METADATA_SERVICE_NUM_ATTEMPTS=3
umask 077
mkdir -p "$RUN"

# The console outlives the host: `aws ec2 get-console-output` shows it after an abandoned launch.
log() {
  logger -t voice-host -- "$*" || true
  echo "voice-host: $*" >>"$ROOT/dev/console"
}

# Only the first reason is kept: later failures are consequences.
note_failure() {
  [[ -s $RUN/failure ]] || echo "$STEP: $*" >"$RUN/failure"
}

fail() {
  note_failure "$*"
  exit 1
}

# retry TRIES COMMAND...: waits 2, 4, 8... seconds between attempts.
retry() {
  local try=1
  until "${@:2}"; do
    log "try $try of $1 failed: $2 ${3-}"
    ((try < $1)) || return 1
    sleep $((2 ** try))
    ((try += 1))
  done
}

# metadata PATH, by IMDSv2; fails if the path does not exist.
metadata() {
  local url=http://169.254.169.254/latest token
  token=$(curl -fs -m 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $url/api/token) || return 1
  curl -fs -m 2 -H "X-aws-ec2-metadata-token: $token" "$url/meta-data/$1"
}

# interface_of MAC
interface_of() {
  local file
  file=$(grep -lxF "$1" "$ROOT"/sys/class/net/*/address) || fail "no network interface has the address $1"
  basename "${file%/address}"
}

# set_kernel FILE VALUE
set_kernel() {
  echo "$2" | tee "$ROOT$1" >/dev/null
}

identify() {
  INSTANCE_ID=$(retry 5 metadata instance-id) || fail 'the metadata service does not respond'
  HOST_ADDRESS=$(metadata local-ipv4)
  ZONE=$(metadata placement/availability-zone)
  INTERFACE=$(interface_of "$(metadata mac)")
}
