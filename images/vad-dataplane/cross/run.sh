#!/usr/bin/env bash
# Builds the data plane for arm64 as the image has it, and runs its tests under qemu-user. Installs what it needs from
# Debian when it is missing.
#   run.sh [BUILD FOLDER]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath -m "${1:-build/vad-dataplane}")/arm64
sysroot=$build-sysroot

"$here/../tests/install.sh" "$here/../tests/packages.txt" "$here/packages.txt"
"$here/../subprojects/fetch.sh"

# Debian's libdpdk-dev is for one architecture at a time. Nothing in there runs while it is made: no emulation.
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
# qemu-user has no bpf(), and says of a socket's empty error queue (MSG_ERRQUEUE) that it read 0 bytes from it.
meson test -C "$build" --no-suite bpf --no-suite network --no-suite build-machine --print-errorlogs --quiet
