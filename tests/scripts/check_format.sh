#!/usr/bin/env bash
# The sources (C++, JavaScript) are formatted as .clang-format says. `check_format.sh --fix` formats them.
# Version 14 (Debian 12): others lay some lines out in another way.
set -euo pipefail
cd -- "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
formatter=$(command -v clang-format-14 || command -v clang-format) || {
  echo "check_format: there is no clang-format; what to do: apt-get install clang-format" >&2
  exit 1
}
[[ $("$formatter" --version) == *" version 14."* ]] || {
  echo "check_format: $formatter is not version 14 but $("$formatter" --version); what to do: install clang-format-14" >&2
  exit 1
}
mapfile -d '' -t files < <(find kernels parallel runtime topology launch tests -type f \
  '(' -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.js' ')' -print0 | sort -z)
((${#files[@]} > 0)) || { echo "check_format: no sources found" >&2; exit 1; }
mode=(--dry-run -Werror)
[[ ${1:-} != --fix ]] || mode=(-i)
"$formatter" --style=file "${mode[@]}" "${files[@]}" || {
  echo "check_format: not formatted; what to do: tests/scripts/check_format.sh --fix" >&2
  exit 1
}
echo "check_format: ${#files[@]} files"
