# shellcheck shell=bash
# Images are pulled by digest, so an existing one is the right one: a host from the warm pool pulls nothing.

# login REGISTRY
login() {
  aws ecr get-login-password | docker login -u AWS --password-stdin "$1" >/dev/null
}

images() {
  local name
  for name in "${CONTAINERS[@]}"; do
    ! docker image inspect "${IMAGE[$name]}" >/dev/null 2>&1 || continue
    [[ -e $DOCKER_CONFIG ]] || retry 5 login "${IMAGE[$name]%%/*}" || fail "cannot log in to ${IMAGE[$name]%%/*}"
    heartbeat "$LAUNCH_HOOK"
    [[ -z ${SIGNING_KEY-} ]] || retry 3 signed "${IMAGE[$name]}" ||
      fail "${IMAGE[$name]} is not signed with the key of image_signing"
    retry 5 docker pull -q "${IMAGE[$name]}" || fail "cannot pull ${IMAGE[$name]}"
  done
  rm -rf "$DOCKER_CONFIG"
}
