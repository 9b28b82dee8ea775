#!/usr/bin/env bash
# Functions shared by the deploy scripts: a report for reviewers, and the rollback.
set -euo pipefail

# report TO FILE COMMAND...: write the output of each command, and return 1 if one of them fails.
report() {
  local to=$1 file=$2 command failed=0
  shift 2
  printf '## %s at %s\n' "$file" "$(git rev-parse --short HEAD)" >"$to"
  for command in "$@"; do
    printf '\n<details><summary><code>%s</code></summary>\n\n```\n' "$command" >>"$to"
    # No word contains a space: the file is a path in the repository.
    # shellcheck disable=SC2086
    NO_COLOR=1 $command >>"$to" 2>&1 || failed=1
    printf '```\n\n</details>\n' >>"$to"
  done
  return "$failed"
}

# roll_back REVISION COMMAND...: run the command in a checkout of the revision; always exit with 1, because the intended
# deploy failed.
roll_back() {
  local revision=$1
  shift
  echo "rolling back to $revision" >&2
  git worktree add --force --detach build/previous "$revision"
  make -C build/previous setup
  (cd build/previous && PATH="$PWD/.venv/bin:$PWD/node_modules/.bin:$PATH" "$@")
  echo "rolled back to $revision" >&2
  exit 1
}
