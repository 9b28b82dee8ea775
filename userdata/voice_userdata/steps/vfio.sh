# shellcheck shell=bash
# Binds the secondary interface to DPDK. The primary stays with the kernel, or the host would lose its connection to
# AWS.

secondary_mac() {
  local mac macs=network/interfaces/macs
  for mac in $(metadata $macs/); do
    if [[ $(metadata "$macs/${mac}device-number") == 1 ]]; then
      echo "${mac%/}"
      return
    fi
  done
  fail 'no network interface has device number 1'
}

bind_vfio() {
  local link device=/sys/bus/pci/devices unsafe=/sys/module/vfio/parameters/enable_unsafe_noiommu_mode
  link=$(interface_of "$1")
  PCI=$(basename "$(readlink -f "$ROOT/sys/class/net/$link/device")")
  device+=/$PCI
  # Virtual hosts have no IOMMU.
  [[ -e $ROOT$unsafe ]] || fail 'the kernel has no CONFIG_VFIO_NOIOMMU'
  set_kernel $unsafe 1
  ip link set dev "$link" down
  set_kernel "$device/driver_override" vfio-pci
  set_kernel "$device/driver/unbind" "$PCI"
  set_kernel /sys/bus/pci/drivers_probe "$PCI"
  [[ $(readlink "$ROOT$device/driver") == */vfio-pci ]] || fail "$link ($PCI) did not bind to vfio-pci"
  echo "$PCI" >"$RUN/vfio"
}

vfio() {
  local mac kernel baked=/etc/voice/vfio-write-combining
  # Mainline vfio-pci maps without write combining, which ENA's low-latency queues need; the image records the kernel
  # release that its patched module was built for.
  kernel=$(uname -r)
  grep -qxF "$kernel" "$ROOT$baked" || fail "no vfio-pci with write combining is baked for kernel $kernel ($baked)"
  modprobe vfio-pci || fail 'vfio-pci does not load'
  mac=$(secondary_mac)
  HOST_ADDRESS=$(metadata "network/interfaces/macs/$mac/local-ipv4s" | head -n 1)
  echo "$HOST_ADDRESS" >"$RUN/target"

  # Once bound, the interface is absent from the kernel until the next boot.
  if [[ -e $RUN/vfio ]]; then PCI=$(<"$RUN/vfio"); else bind_vfio "$mac"; fi
  # shellcheck disable=SC2034 # containers.sh reads it
  INTERFACE=$PCI
  # The container device and the one group that is bound.
  DEVICES=("$ROOT"/dev/vfio/*)
  DEVICES=("${DEVICES[@]#"$ROOT"}")
  ((${#DEVICES[@]} > 1)) || fail "$PCI has no group in /dev/vfio"
  echo "{\"data_path\": \"vfio\", \"interface\": \"$PCI\"}" >"$RUN/data-path.json"
}

# target register-targets|deregister-targets; Auto Scaling registers primary interfaces only.
target() {
  aws elbv2 "$1" --target-group-arn "$TARGET_GROUP" --targets "Id=$(<"$RUN/target")"
}
