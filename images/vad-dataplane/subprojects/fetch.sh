#!/bin/sh
# Fetches the archive of libsrtp2.wrap from the same Debian mirror as apt, which closed networks permit. Plain HTTP
# suffices, because the wrap has its checksum. With a time, fetch.sh SNAPSHOT takes an archive that Debian has replaced
# from its snapshot, as images/debian.sh does.
set -eu

cd "$(dirname "$0")"
of_wrap() { sed -n "s/^$1 = //p" libsrtp2.wrap; }
archive=packagecache/$(of_wrap source_filename)
[ ! -e "$archive" ] || exit 0
mkdir -p packagecache
url=$(of_wrap source_url | sed 's/^https/http/')
fetch() { /usr/lib/apt/apt-helper download-file "$1" "$archive" "SHA256:$(of_wrap source_hash)"; }
fetch "$url" || fetch "http://snapshot.debian.org/archive/debian/${1:?is the time of a snapshot}/${url#*/debian/}"
