#!/usr/bin/env bash
# Installs packages from Debian when one of them is missing.
# With --if-possible it prints the packages that it could not install, and ends with 0.
set -euo pipefail

if_possible=
if [[ ${1-} == --if-possible ]]; then
  if_possible=yes
  shift
fi

mapfile -t packages < <(cat "$@")
missing=()
for package in "${packages[@]}"; do
  # dpkg also lists a package that was removed, or that another one suggests.
  state=$(dpkg-query --show --showformat=' ${db:Status-Status} ' "$package" 2>/dev/null) || true
  [[ $state == *" installed "* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

# Explains what to do if nothing can be installed.
cannot() {
  echo "$1: not installed: ${missing[*]}" >&2
  echo "as root, on Debian or Ubuntu: apt-get install --no-install-recommends ${missing[*]}" >&2
  [[ -n $if_possible ]] || exit 1
  echo "${missing[*]}"
  exit 0
}

command -v apt-get >/dev/null || cannot "there is no apt-get on this machine"
as_root=()
if [[ $EUID != 0 ]]; then
  command -v sudo >/dev/null || cannot "packages need root, and there is no sudo"
  # Without a terminal, no one can enter a password.
  [[ -t 0 ]] || sudo --non-interactive true 2>/dev/null || cannot "packages need root, and sudo requires a password"
  as_root=(sudo)
fi
{
  "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}"
} >&2 || cannot "apt-get failed"
