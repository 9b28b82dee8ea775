#!/bin/sh
# In the built image, as its user: the program starts, reports unreadable sources, serves Prometheus, and stops cleanly.
set -eu
[ "$(id -u)" = 10001 ] || { echo "runs as $(id -u)" >&2; exit 1; }
exec python /smoke/start.py
