# shellcheck shell=bash
# Docker's --gpus requires the hook of nvidia-container-toolkit; without it, each container fails.

gpu() {
  nvidia-smi -L >/dev/null || fail 'nvidia-smi finds no usable GPU'
  command -v nvidia-container-runtime-hook >/dev/null || fail 'nvidia-container-toolkit is not in the image'
}
