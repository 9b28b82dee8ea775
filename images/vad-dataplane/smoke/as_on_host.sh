#!/usr/bin/env bash
# Runs an image's program like `docker run` on a host (userdata/voice_userdata/steps/containers.sh): with the host's
# network, a read-only root, only the given capabilities, and no way to gain more. The caller provides a separate mount
# namespace.
#   as_on_host.sh SHARED ROOT CAPABILITY,... COMMAND...
set -euo pipefail

shared=$1 root=$2 capabilities=$3
shift 3
mount --bind -o ro "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/dev"
for device in null random urandom zero; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t tmpfs tmpfs "$root/tmp"
mkdir "$root$shared"
mount --bind "$shared" "$root$shared"
# The image sets the path of its module.
unset VOICE_VAD_MODULE
cd "$root"
exec chroot "$root" setpriv --no-new-privs --bounding-set="-all,+${capabilities//,/,+}" --inh-caps=-all "$@"
