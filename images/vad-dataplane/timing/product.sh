#!/usr/bin/env bash
# Builds parts of the data plane as in the image (../Dockerfile): in release mode, for the image's processor.
#   product.sh BUILD_FOLDER TARGET...
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$1
shift

"$here/../tests/install.sh" "$here/../tests/packages.txt"
"$here/../subprojects/fetch.sh"

if [[ ! -e $build/build.ninja ]]; then
  case $(uname -m) in
    aarch64) processor=-mcpu=native ;;
    x86_64) processor=-march=x86-64-v3 ;;
    *) echo "$(uname -m): the data plane is built for aarch64 and x86_64" >&2; exit 1 ;;
  esac
  # Without the processor that Debian's DPDK sets, which would override ours.
  mkdir -p "$build.pkgconfig"
  sed -E 's/ -m[a-z]\S+//g' "$(pkg-config --variable=pcfiledir libdpdk-libs)/libdpdk-libs.pc" \
    >"$build.pkgconfig/libdpdk-libs.pc"
  PKG_CONFIG_PATH=$build.pkgconfig CC="gcc $processor" CXX="g++ $processor" \
    meson setup --buildtype=release -Drun_in_place=true "$build" "$here/.."
fi
ninja --quiet -C "$build" "$@"
