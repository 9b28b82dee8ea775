# shellcheck shell=bash
# Readies the primary interface for AF_XDP. The data plane attaches the program; here it is made sure that it can.

# ring FLAG SECTION KEY, of the two sections that `ethtool -l` and `ethtool -g` print
ring() {
  ethtool "$1" "$INTERFACE" | awk -v section="$2" -v key="$3:" '/:$/ {now = $1} now == section && $1 == key {print $2}'
}

# set_ring FLAG KEY WORD VALUE; ethtool fails when there is nothing to change, and rounds without a word
set_ring() {
  [[ $(ring "$1" Current "$2") == "$4" ]] || ethtool "${1^^}" "$INTERFACE" "$3" "$4" || true
  [[ $(ring "$1" Current "$2") == "$4" ]] || fail "$INTERFACE did not take $3 $4"
}

af_xdp() {
  local about queues zero_copy=false
  about=$(ethtool -i "$INTERFACE")
  [[ $about == 'driver: ena'[[:space:]]* ]] || fail "native XDP is known of ena alone, not of ${about%%$'\n'*}"

  # amzn-drivers 2.17 gives XDP every queue and sends without copies; before, each needs a second one to send on.
  queues=$(ring -l Pre-set Combined)
  if [[ $about =~ version:\ ([0-9]+)\.([0-9]+)\.[0-9]+g ]] && ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] >= 2017)); then
    zero_copy=true
  else
    ((queues /= 2))
  fi
  ((RX_QUEUES <= queues)) || fail "$INTERFACE has $queues queues for XDP, $RX_QUEUES are asked"
  set_ring -l Combined combined "$RX_QUEUES"
  set_ring -g RX rx "$RX_RING_SIZE"
  echo "{\"data_path\": \"af_xdp\", \"interface\": \"$INTERFACE\", \"zero_copy\": $zero_copy}" \
    >"$RUN/data-path.json"
}
