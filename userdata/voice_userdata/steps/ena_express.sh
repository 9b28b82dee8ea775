# shellcheck shell=bash
# Configures what AWS' check-ena-express-settings.sh requires of a host, and verifies it. Runs after af_xdp.sh, which
# recreates the queues and sets their rings. mtu.sh sets the MTU.

ena_express() {
  local queue mode switch=$ROOT/sys/module/ena/parameters/enable_bql
  set_kernel /proc/sys/net/ipv4/tcp_limit_output_bytes 1048576
  set_kernel /proc/sys/net/ipv4/tcp_autocorking 0
  if [[ -e $switch ]]; then
    [[ $(<"$switch") == 0 ]] || fail "byte queue limits are on: bake 'options ena enable_bql=0'"
  else
    for queue in "$ROOT/sys/class/net/$INTERFACE"/queues/tx-*; do
      set_kernel "${queue#"$ROOT"}/byte_queue_limits/limit_min" max
    done
  fi

  # Bit 0 is ENA Express, bit 1 its use for UDP, which carries the audio.
  mode=$(ethtool -S "$INTERFACE" | awk '$1 == "ena_srd_mode:" {print $2}')
  (((${mode:-0} & 3) == 3)) || fail "ena_srd_mode is '$mode', not 3: see EnaSrdSpecification"
}
