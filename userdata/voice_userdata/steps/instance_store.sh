# shellcheck shell=bash
# Combines the local NVMe disks to one file system. A stop empties them, a reboot does not, so this runs at every boot.

instance_store() {
  local model disks=() device
  ! mountpoint -q "$ROOT$INSTANCE_STORE" || return 0
  for model in "$ROOT"/sys/block/nvme*/device/model; do
    ! grep -q '^Amazon EC2 NVMe Instance Storage' "$model" || disks+=("/dev/$(basename "${model%/device/model}")")
  done
  ((${#disks[@]})) || fail 'the host has no NVMe instance store'

  device=$(blkid -L voice-store || true)
  if [[ -z $device ]]; then
    device=${disks[0]}
    if ((${#disks[@]} > 1)); then
      need mdadm mdadm
      device=/dev/md/voice
      mdadm --create $device --run --level=0 --raid-devices=${#disks[@]} "${disks[@]}"
    fi
    # The disks are trimmed already; discarding terabytes again takes minutes.
    mkfs.xfs -q -f -K -L voice-store "$device"
  fi
  mkdir -p "$ROOT$INSTANCE_STORE"
  mount -o noatime "$device" "$ROOT$INSTANCE_STORE"
}
