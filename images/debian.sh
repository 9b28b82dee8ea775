#!/bin/sh
# debian.sh SNAPSHOT [--source NAME=VERSION] NAME=VERSION...: install Debian packages at these versions, in a
# Dockerfile; --source also unpacks a source package into the current folder.
#
# Debian's archive keeps only the newest version of a package. If it has replaced one of these, all of them are
# installed from the archive's state at SNAPSHOT (images/bases.yaml), so that a tagged release can be rebuilt. This
# requires the release's base image as well: apt does not replace a newer library of the base with an older one.
set -eu

snapshot=$1
shift
source=
if [ "$1" = --source ]; then
  source=$2
  shift 2
fi

# Lists for this run only: the image keeps those of its base.
eval "$(apt-config shell list Dir::Etc::SourceList/f parts Dir::Etc::SourceParts/d etc Dir::Etc/d)"
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
# shellcheck disable=SC2154 # apt-config sets both
for file in "$list" "$parts"*; do
  [ ! -f "$file" ] || cp "$file" "$lists"
done
[ -z "$source" ] || sed -i -E 's/^Types: deb$/Types: deb deb-src/; s/^deb (.*)$/deb \1\ndeb-src \1/' "$lists"/*

apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$lists" \
    -o Acquire::Retries=3 -y --no-install-recommends "$@"
}

available() { # PACKAGE...: whether the lists have each of them, and the source package
  apt update && apt install --simulate "$@" && { [ -z "$source" ] || apt source --print-uris "$source"; }
}

if ! available "$@" >"$lists/said" 2>&1; then
  tail -n 4 "$lists/said" >&2
  echo "debian.sh: Debian's archive does not have these versions; taking those of $snapshot" >&2
  rm "$lists"/*
  # shellcheck disable=SC1091,SC2154 # the file is the base's
  suite=$(. "${etc%/apt/}/os-release" && echo "$VERSION_CODENAME")
  for archive in "debian $suite" "debian $suite-updates" "debian-security $suite-security"; do
    # The lists of that time are expired by design; Debian's signature is still checked. The base has no TLS
    # certificates.
    at="[check-valid-until=no] http://snapshot.debian.org/archive/${archive% *}/$snapshot ${archive#* } main"
    echo "deb $at" >>"$lists/snapshot.list"
    [ -z "$source" ] || echo "deb-src $at" >>"$lists/snapshot.list"
  done
  apt update
fi
apt install "$@"
[ -z "$source" ] || apt source "$source"
