# shellcheck shell=bash
# ECS' AL2023 image has no Neuron hook for Docker: every device is passed by name.

neuron() {
  local device
  neuron-ls >/dev/null || fail 'neuron-ls finds no usable Neuron device'
  for device in "$ROOT"/dev/neuron*; do
    [[ ! -e $device ]] || DEVICES+=("${device#"$ROOT"}")
  done
  ((${#DEVICES[@]})) || fail 'no /dev/neuron* device exists'
}
