#!/usr/bin/env bash
# Unpacks the router image's HAProxy and its libraries into FOLDER; installs nothing. The package comes from the image's
# Debian release, which may differ from this machine's.
set -euo pipefail

folder=$1 suite=$2 mirror=http://deb.debian.org keyring=/usr/share/keyrings/debian-archive-keyring.gpg
for program in apt-get dpkg-deb; do
  command -v "$program" >/dev/null || { echo "the router's tests need $program, which Debian and Ubuntu have" >&2; exit 1; }
done
[ -e "$keyring" ] || { echo "the router's tests need $keyring: apt-get install debian-archive-keyring" >&2; exit 1; }

apt=$folder/apt
rm -rf "$folder"
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/etc"
touch "$apt/status"
printf 'deb [signed-by=%s] %s %s main\n' \
  "$keyring" "$mirror/debian" "$suite" "$keyring" "$mirror/debian-security" "$suite-security" >"$apt/etc/sources.list"
options=(-qq -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt"
  -o "Dir::Etc::sourcelist=$apt/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "APT::Sandbox::User=$(id -un)")
apt-get "${options[@]}" update
apt-get "${options[@]}" install --yes --download-only --no-install-recommends haproxy >/dev/null
for package in "$apt"/archives/*.deb; do
  dpkg-deb --extract "$package" "$folder/root"
done
rm -rf "$apt"

# Started with its own C library, because this machine's may be older.
cat >"$folder/haproxy" <<'RUN'
#!/bin/sh
root=$(cd "$(dirname "$0")" && pwd)/root
for loader in "$root"/usr/lib64/ld-linux-*.so.* "$root"/usr/lib/ld-linux-*.so.*; do
  [ -e "$loader" ] && exec "$loader" --library-path "$(echo "$root"/usr/lib/*-linux-gnu)" "$root/usr/sbin/haproxy" "$@"
done
RUN
chmod +x "$folder/haproxy"
"$folder/haproxy" -v
