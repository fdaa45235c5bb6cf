#!/usr/bin/env bash
# clang-tidy, with the checks of .clang-tidy, over every source of ours in a build folder.   check_tidy.sh [BUILD [JOBS]]
set -euo pipefail
cd -- "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
build=${1:-build}
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || {
  echo "check_tidy: there is no clang-tidy; what to do: apt-get install clang-tidy" >&2
  exit 1
}
mapfile -t files < <(python3 - "$build/compile_commands.json" <<'PYTHON'
import json, pathlib, sys
here = pathlib.Path.cwd()
files = {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in json.load(open(sys.argv[1]))}
ours = sorted(f.relative_to(here).as_posix() for f in files if f.is_relative_to(here))
print("\n".join(f for f in ours if f.split("/")[0] in {"kernels", "parallel", "runtime", "topology", "launch"}))
PYTHON
)
[[ ${#files[@]} -gt 0 && -n ${files[0]} ]] || { echo "check_tidy: no sources in $build/compile_commands.json" >&2; exit 1; }
printf '%s\0' "${files[@]}" | xargs -0 -n1 -P "${2:-$(nproc)}" "$tidy" -p "$build" --quiet
echo "check_tidy: ${#files[@]} files"
