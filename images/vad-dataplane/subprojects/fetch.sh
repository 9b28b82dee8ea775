#!/bin/sh
# Fetches the archive of libsrtp2.wrap as apt fetches everything else: Debian's mirror is what a closed network lets
# through. Plain HTTP will do, since the wrap has its checksum.
set -eu

cd "$(dirname "$0")"
of_wrap() { sed -n "s/^$1 = //p" libsrtp2.wrap; }
archive=packagecache/$(of_wrap source_filename)
[ ! -e "$archive" ] || exit 0
mkdir -p packagecache
/usr/lib/apt/apt-helper download-file "$(of_wrap source_url | sed 's/^https/http/')" "$archive" \
  "SHA256:$(of_wrap source_hash)"
