#!/usr/bin/env bash
# Builds the data plane for arm64 in the same way as the image, and runs its tests under qemu-user. Installs missing
# packages from Debian.
#   run.sh [BUILD FOLDER]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath -m "${1:-build/vad-dataplane}")/arm64
sysroot=$build-sysroot

"$here/../tests/install.sh" "$here/../tests/packages.txt" "$here/packages.txt"
"$here/../subprojects/fetch.sh"

# Debian's libdpdk-dev can be installed for one architecture at a time, so this creates a root file system for arm64. No
# program of it runs here, so no emulation is needed.
if [[ ! -e $sysroot.ini ]]; then
  rm -rf "$sysroot"
  mirror=http://deb.debian.org
  mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$(paste -sd, "$here/sysroot.txt")" \
    --keyring=/usr/share/keyrings/debian-archive-keyring.gpg bookworm "$sysroot" \
    "deb $mirror/debian bookworm main" "deb $mirror/debian bookworm-updates main" \
    "deb $mirror/debian-security bookworm-security main"
  # As in ../Dockerfile.
  sed -i -E 's/ -m[a-z]\S+//g' "$sysroot/usr/lib/aarch64-linux-gnu/pkgconfig/libdpdk-libs.pc"
  printf "[constants]\nsysroot = '%s'\n" "$sysroot" >"$sysroot.ini"
fi

[[ -e $build/build.ninja ]] || meson setup "$build" "$here/.." \
  --cross-file "$sysroot.ini" --cross-file "$here/arm64.ini" --buildtype=release
# qemu-user has no bpf(), and returns 0 bytes for a socket's empty error queue (MSG_ERRQUEUE).
meson test -C "$build" --no-suite bpf --no-suite network --no-suite build-machine --print-errorlogs --quiet
