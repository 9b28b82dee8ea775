# shellcheck shell=bash
# The ECS-optimized image is minimal. Installing at boot is slower than baking and can fail, so it is logged.

# need COMMAND PACKAGE
need() {
  ! command -v "$1" >/dev/null || return 0
  log "installing $2 for $1"
  retry 3 dnf install -y -q "$2" || fail "cannot install $2: bake it into the image"
}
