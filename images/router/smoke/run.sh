#!/bin/sh
# In the built image, as its user: a deployment's configuration is valid, and the router starts and stops with it.
set -eu
[ "$(id -u)" = 10001 ] || { echo "runs as $(id -u)" >&2; exit 1; }
# Debian's /run/lock is world-writable; a read-only root file system prevents writes.
writable=$(find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/tmp -o -path /run/lock \) \
  -prune -o -type d ! -readable -prune -o \( -type d -o -type f \) -writable -print)
[ -z "$writable" ] || { echo "the user can write to: $writable" >&2; exit 1; }
haproxy -c -f /etc/voice/haproxy.cfg
haproxy -db -f /etc/voice/haproxy.cfg &
router=$!
# The image has no HTTP client.
bash -c '
  for _ in $(seq 100); do
    if exec 3<>/dev/tcp/127.0.0.1/8080; then
      printf "GET %s HTTP/1.0\r\n\r\n" /health >&3
      read -r _ status _ <&3
      [ "$status" = 200 ] && exit
    fi 2>/dev/null
    sleep 0.1
  done
  echo "the router does not answer /health" >&2
  exit 1'
kill -USR1 "$router"
wait "$router"
