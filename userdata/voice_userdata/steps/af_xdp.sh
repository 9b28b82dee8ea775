# shellcheck shell=bash
# Prepares the primary interface for AF_XDP. The data plane attaches the program; this step makes sure that it can.

# ring FLAG SECTION KEY, of the two sections that `ethtool -l` and `ethtool -g` print
ring() {
  ethtool "$1" "$INTERFACE" | awk -v section="$2" -v key="$3:" '/:$/ {now = $1} now == section && $1 == key {print $2}'
}

# set_ring FLAG KEY WORD VALUE; ethtool fails if there is nothing to change, and rounds silently
set_ring() {
  [[ $(ring "$1" Current "$2") == "$4" ]] || ethtool "${1^^}" "$INTERFACE" "$3" "$4" || true
  [[ $(ring "$1" Current "$2") == "$4" ]] || fail "$INTERFACE did not accept $3 $4"
}

# The data plane polls on the last cores, one per queue (pipeline/data_plane.cpp, pin_to); interrupts use the others.
# A poller asks the kernel to work on its queue while it polls; the kernel then defers that queue's interrupts, for at most
# the timeout, as long as it is polled (docs.kernel.org/networking/napi.html, IRQ suspension and software IRQ coalescing).
interrupts() {
  local irq cpus last
  cpus=$(<"$ROOT/sys/devices/system/cpu/online")
  last=$((${cpus##*[-,]} - RX_QUEUES))
  ((last >= 0)) || fail "$RX_QUEUES queues leave no core of $cpus for interrupts"
  systemctl mask --now irqbalance
  for irq in "$ROOT/sys/class/net/$INTERFACE"/device/msi_irqs/*; do
    # A rehearsal's virtio interrupts are those of its bus.
    [[ ! -e $irq ]] || set_kernel "/proc/irq/${irq##*/}/smp_affinity_list" "0-$last"
  done
  set_kernel "/sys/class/net/$INTERFACE/napi_defer_hard_irqs" 2
  set_kernel "/sys/class/net/$INTERFACE/gro_flush_timeout" 200000 # ns
}

af_xdp() {
  local about queues zero_copy=false
  about=$(ethtool -i "$INTERFACE")
  [[ $about == 'driver: ena'[[:space:]]* ]] || fail "native XDP is only supported with ena, not with ${about%%$'\n'*}"

  # amzn-drivers 2.17 gives XDP every queue and sends without copies; older versions need a second queue for sending.
  queues=$(ring -l Pre-set Combined)
  if [[ $about =~ version:\ ([0-9]+)\.([0-9]+)\.[0-9]+g ]] && ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] >= 2017)); then
    zero_copy=true
  else
    ((queues /= 2))
  fi
  ((RX_QUEUES <= queues)) || fail "$INTERFACE has $queues queues for XDP, but $RX_QUEUES are required"
  set_ring -l Combined combined "$RX_QUEUES"
  set_ring -g RX rx "$RX_RING_SIZE"
  interrupts # behind those that change them
  echo "{\"data_path\": \"af_xdp\", \"interface\": \"$INTERFACE\", \"zero_copy\": $zero_copy}" \
    >"$RUN/data-path.json"
}
