#!/bin/sh
# In the built image, as its user: required settings, and loading of its libraries.
set -eu
[ "$(id -u)" = 10001 ] || { echo "runs as $(id -u)" >&2; exit 1; }
writable=$(find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/tmp -o -path /run/lock \
  -o -path /var/cache/voice \) -prune -o -type d ! -readable -prune -o \( -type d -o -type f \) -writable -print)
[ -z "$writable" ] || { echo "the user can write to: $writable" >&2; exit 1; }
exec python /smoke/start.py
