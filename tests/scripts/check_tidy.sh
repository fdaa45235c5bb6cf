#!/usr/bin/env bash
# clang-tidy, with the checks of .clang-tidy, over every source of ours in a build folder.   check_tidy.sh [BUILD [JOBS]]
set -euo pipefail
cd -- "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
build=${1:-build}
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || {
  echo "check_tidy: there is no clang-tidy; what to do: apt-get install clang-tidy" >&2
  exit 1
}
commands=$(mktemp -d)
trap 'rm -rf -- "$commands"' EXIT
# Each source once (kernels are compiled in two modes: the first counts), without the flag that clang does not know.
mapfile -t files < <(python3 - "$build/compile_commands.json" "$commands/compile_commands.json" <<'PYTHON'
import json, pathlib, sys
here = pathlib.Path.cwd()
entries = {}
for entry in json.load(open(sys.argv[1])):
    file = pathlib.Path(entry["directory"], entry["file"]).resolve()
    if file.is_relative_to(here):
        entry["command"] = entry["command"].replace(" -fno-gnu-unique", "")
        entries.setdefault(file.relative_to(here).as_posix(), entry)
json.dump(list(entries.values()), open(sys.argv[2], "w"))
ours = {"kernels", "parallel", "runtime", "topology", "launch"}
print("\n".join(name for name in sorted(entries) if name.split("/")[0] in ours))
PYTHON
)
[[ ${#files[@]} -gt 0 && -n ${files[0]} ]] || { echo "check_tidy: no sources in $build/compile_commands.json" >&2; exit 1; }
printf '%s\0' "${files[@]}" | xargs -0 -n1 -P "${2:-$(nproc)}" "$tidy" -p "$commands" --quiet
echo "check_tidy: ${#files[@]} files"
