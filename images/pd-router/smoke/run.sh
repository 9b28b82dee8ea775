#!/bin/sh
# In the built image, as its user: both programs start as a cell starts them, and pass requests to the right engine.
set -eu
[ "$(id -u)" = 10001 ] || { echo "runs as $(id -u)" >&2; exit 1; }
# Debian's /run/lock is world-writable; a read-only root file system prevents writes.
writable=$(find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/tmp -o -path /run/lock \) \
  -prune -o -type d ! -readable -prune -o \( -type d -o -type f \) -writable -print)
[ -z "$writable" ] || { echo "the user can write to: $writable" >&2; exit 1; }
vllm-router --help >/dev/null
exec python3 /smoke/request.py
