#!/usr/bin/env bash
# Every shell script passes shellcheck.
set -euo pipefail
cd -- "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
command -v shellcheck >/dev/null || {
  echo "check_shell: there is no shellcheck; what to do: apt-get install shellcheck" >&2
  exit 1
}
mapfile -d '' -t scripts < <(find .ci launch tests -type f ! -path '*/data/*' \
  -exec sh -c 'case $1 in *.sh) ;; *) head -n1 "$1" | grep -aqE "^#!.*\b(ba)?sh\b" ;; esac' _ '{}' ';' -print0 | sort -z)
((${#scripts[@]} > 4)) || { echo "check_shell: only ${#scripts[@]} scripts found" >&2; exit 1; }
# SC2016: the bodies of fake commands stand in single quotes on purpose.
shellcheck -x -e SC2016 -- "${scripts[@]}"
echo "check_shell: ${#scripts[@]} scripts"
