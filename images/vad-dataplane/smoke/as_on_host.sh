#!/usr/bin/env bash
# Becomes an image's program as `docker run` starts it on a host (userdata/steps/containers.sh): the host's network, a
# read-only root, no capability but those given, none to be had. In a mount namespace of its own.
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
# The image knows where its module is.
unset VOICE_VAD_MODULE
cd "$root"
exec chroot "$root" setpriv --no-new-privs --bounding-set="-all,+${capabilities//,/,+}" --inh-caps=-all "$@"
