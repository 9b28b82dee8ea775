#!/usr/bin/env bash
# Installs packages from Debian when one of them is missing.
#   install.sh LIST...
set -euo pipefail

mapfile -t packages < <(cat "$@")
if ! dpkg-query --show "${packages[@]}" >/dev/null 2>&1; then
  as_root=()
  [[ $EUID == 0 ]] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${packages[@]}"
fi
