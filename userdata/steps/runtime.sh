# shellcheck shell=bash
# Docker up, the ECS agent that the image brings off, the accelerator visible.

runtime() {
  systemctl mask --now ecs
  systemctl enable --now docker
  retry 5 docker info >/dev/null || fail 'Docker does not answer'
}
