# shellcheck shell=bash
# Docker up, the ECS agent that the image brings off, room for a burst of datagrams in every socket.

runtime() {
  set_kernel /proc/sys/net/core/rmem_max 8388608
  systemctl mask --now ecs
  systemctl enable --now docker
  retry 5 docker info >/dev/null || fail 'Docker does not answer'
}
