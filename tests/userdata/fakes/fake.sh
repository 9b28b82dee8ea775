#!/bin/bash
# Every external command of a host, under its own name: records its calls and simulates the test's machine. State is in
# $FAKE; lines of $FAKE/fail and $FAKE/fail-once are patterns of failing calls.
PATH=/usr/bin:/bin
name=${0##*/}
ROOT=$VOICE_ROOT

record() {
  printf '%s\n' "${*//$ROOT/}" >>"$FAKE/transcript"
}

state() { # FILE DEFAULT
  if [[ -e $FAKE/$1 ]]; then cat "$FAKE/$1"; else printf '%s\n' "$2"; fi
}

# One line per read; the last one repeats.
next_line() {
  head -n 1 "$1"
  [[ $(wc -l <"$1") -lt 2 ]] || sed -i 1d "$1"
}

injected_failure() {
  local file line
  for file in fail fail-once; do
    [[ -e $FAKE/$file ]] || continue
    line=$(while IFS= read -r line; do [[ ! "$name $*" =~ $line ]] || echo "$line"; done <"$FAKE/$file" | head -n 1)
    [[ -n $line ]] || continue
    [[ $file == fail ]] || sed -i "0,\\|^$line\$|{//d}" "$FAKE/$file"
    return 0
  done
  return 1
}

imds() {
  local url=${*: -1}
  [[ $url != https://* ]] || exec curl "$@" # a registry of the test, which is real
  [[ $* != *'-X PUT'* ]] || { echo a-token && exit; }
  [[ $* == *'X-aws-ec2-metadata-token: a-token'* ]] || exit 22
  local file=$FAKE/imds/${url##*/meta-data/}
  [[ ! -e ${file%/}.listing ]] || file=${file%/}.listing
  [[ -f $file ]] || exit 22
  next_line "$file"
}

aws() {
  case "$1 $2" in
    'ecr get-login-password') echo an-ecr-password ;;
    'secretsmanager get-secret-value') next_line "$FAKE/secret" ;;
    'ssm get-parameter') state state-host master.production.use1.cache.amazonaws.com ;;
    'autoscaling complete-lifecycle-action')
      [[ ! -e $FAKE/no-action ]] || {
        echo 'An error occurred (ValidationError): No active Lifecycle Action found with instance ID i-0abc' >&2
        exit 254
      }
      ;;
  esac
}

docker() {
  case $1 in
    image) grep -qxF "${@: -1}" "$FAKE/images" 2>/dev/null || exit 1 ;;
    pull) echo "${@: -1}" >>"$FAKE/images" ;;
    login) mkdir -p "$DOCKER_CONFIG" ;;
    inspect) if [[ -e $FAKE/health ]]; then next_line "$FAKE/health"; else echo healthy; fi ;;
    logs) state "logs-$2" 'Ready.' ;;
  esac
}

systemctl() {
  case $1 in
    start) echo 0 >"$FAKE/active" ;;
    stop) state drain-polls 0 >"$FAKE/active" && touch "$FAKE/stopping" ;;
    show) if [[ $3 == NRestarts ]]; then state restarts 0; else state exit-status 0; fi ;;
    is-active)
      [[ -e $FAKE/active ]] || { echo inactive && exit 3; }
      [[ -e $FAKE/stopping ]] || { echo active && exit; }
      (($(<"$FAKE/active") > 0)) || { echo inactive && exit 3; }
      echo $(($(<"$FAKE/active") - 1)) >"$FAKE/active"
      echo deactivating
      exit 3
      ;;
  esac
}

ethtool() {
  case $1 in
    -i) printf 'driver: %s\nversion: %s\nfirmware-version: \nbus-info: 0000:00:05.0\n' "$(state driver ena)" "$(state version 2.13.0g)" ;;
    -l) printf 'Channel parameters for %s:\nPre-set maximums:\nRX:\tn/a\nCombined:\t8\nCurrent hardware settings:\nRX:\tn/a\nCombined:\t%s\n' "$2" "$(state combined 8)" ;;
    -L) echo "$4" >"$FAKE/combined" ;;
    -g) printf 'Ring parameters for %s:\nPre-set maximums:\nRX:\t16384\nRX Mini:\tn/a\nCurrent hardware settings:\nRX:\t%s\nRX Mini:\tn/a\n' "$2" "$(state rx 1024)" ;;
    -G) echo "$4" >"$FAKE/rx" ;;
    -S) printf 'NIC statistics:\n     tx_timeout: 0\n     ena_srd_mode: %s\n' "$(state srd 3)" ;;
  esac
}

# Simulates the kernel's reaction to a write to one of its files.
tee() {
  local value pci
  value=$(cat)
  record "tee $1 <- $value"
  case $1 in
    */nr_hugepages)
      value=$((value < $(state huge-limit 99999) ? value : $(state huge-limit 99999)))
      echo "$value" >"$1"
      ;;
    */driver/unbind) rm "${1%/unbind}/unbind" && rmdir "${1%/unbind}" && rm -r "$ROOT/sys/class/net/ens6" ;;
    */drivers_probe)
      pci=$ROOT/sys/bus/pci/devices/$value
      [[ -e $FAKE/no-bind ]] || ln -sfn ../../../bus/pci/drivers/vfio-pci "$pci/driver"
      ;;
    *) echo "$value" >"$1" ;;
  esac
}

case $name in
  curl) imds "$@" && exit ;;
  logger) record "# ${*:4}" && exit ;;
  tee) tee "$@" && exit ;;
esac
# A pipe starts both ends at once: the reader is recorded after the writer.
[[ "$name $1" != 'docker login' ]] || cat >/dev/null
record "$name $*"
if injected_failure "$*"; then
  echo "$name: injected failure" >&2
  exit 1
fi
case $name in
  aws | docker | systemctl | ethtool) "$name" "$@" ;;
  install)
    while (($#)); do
      if [[ $1 == -o ]]; then shift; else kept+=("$1"); fi
      shift
    done
    install "${kept[@]}"
    ;;
  networkctl)
    [[ $1 != status ]] || printf '● 2: %s\n    Network File: %s\n' "$2" "$(state network-file /run/systemd/network/70-ens5.network)"
    ;;
  mountpoint) grep -qxF "$2" "$FAKE/mounts" 2>/dev/null ;;
  mount) echo "${@: -1}" >>"$FAKE/mounts" ;;
  # Output of the unit's processes; by the unit's name, systemd's own lines are included.
  journalctl) if [[ $* == *_SYSTEMD_UNIT=* ]]; then state journal ''; else echo 'Consumed 1s CPU time.'; fi ;;
  blkid) [[ -e $FAKE/label ]] && cat "$FAKE/label" ;;
  mkfs.xfs) echo "${@: -1}" >"$FAKE/label" ;;
  dnf) ln -sf "$0" "${0%/*}/$(state dnf-gives nothing)" ;;
  uname) echo 6.1.0-test ;;
  date) echo 1700000000000 ;;
esac
