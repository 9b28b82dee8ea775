# shellcheck shell=bash
# shellcheck disable=SC2034 # lib.sh and images.sh read these variables
# EC2 Image Builder runs this on the machine whose disk becomes a host image: a boot then installs and pulls nothing.

BAKED=/etc/voice
DRIVERS=https://github.com/amzn/amzn-drivers

# Steps shared with a boot expect a hook to answer.
LAUNCH_HOOK=''
heartbeat() { :; }

# Pages reserved during the kernel's start are never fragmented.
huge_pages_at_boot() {
  grubby --update-kernel=ALL \
    --args "default_hugepagesz=${PAGE_SIZE_MIB}M hugepagesz=${PAGE_SIZE_MIB}M hugepages=$PAGE_COUNT"
}

# Mainline vfio-pci maps without write combining: AWS's script patches the module for the running kernel, which is then
# kept. Without CONFIG_VFIO_NOIOMMU no module helps.
vfio_write_combining() {
  local kernel sources=$ROOT/opt/amzn-drivers
  kernel=$(uname -r)
  grep -qx CONFIG_VFIO_NOIOMMU=y "$ROOT/boot/config-$kernel" || fail "kernel $kernel has no CONFIG_VFIO_NOIOMMU"
  dnf install -y -q git gcc make "kernel-devel-$kernel" python3-dnf-plugin-versionlock
  git clone -q "$DRIVERS" "$sources"
  git -C "$sources" checkout -q "$VFIO_DRIVERS"
  (cd "$sources/userspace/dpdk/enav2-vfio-patch" && ./get-vfio-with-wc.sh) || fail "no vfio-pci for kernel $kernel"
  dnf versionlock add kernel
  install -d -m 0755 "$ROOT$BAKED"
  echo "$kernel" >"$ROOT$BAKED/vfio-write-combining"
}

bake() {
  need aws awscli-2
  need ethtool ethtool
  need mkfs.xfs xfsprogs
  runtime
  STEP=images
  images
  STEP=bake
  [[ -z ${PAGE_COUNT-} ]] || huge_pages_at_boot
  [[ -z ${VFIO_DRIVERS-} ]] || vfio_write_combining
}

# After a reboot: finds problems here, before there is an image with them.
check() {
  local name
  STEP=check
  for name in "${CONTAINERS[@]}"; do
    docker image inspect "${IMAGE[$name]}" >/dev/null || fail "${IMAGE[$name]} is not on the disk"
  done
  [[ -z ${PAGE_COUNT-} ]] || huge_pages
  [[ -z ${VFIO_DRIVERS-} ]] || modprobe vfio-pci || fail 'vfio-pci does not load'
}

main() {
  trap 'status=$?; ((status == 0)) || cat "$RUN/failure" >&2' EXIT
  trap 'note_failure "$BASH_COMMAND"' ERR
  "$1"
}
