# shellcheck shell=bash
# For tests/gpu/check.sh and tests/gpu/pack: what starts several ranks on one machine. Open MPI's launcher is packed so that it
# works wherever the folder is put. Sourced after launch/lib.sh.
# shellcheck disable=SC2034,SC2154  # launcher: checks.sh's; programs_from, bin: check.sh's

launcher=()  # a command that starts ranks, up to their number
launcher_why=""

# find_launcher: the one beside packed programs, which is of the same Open MPI; else that of PATH. Status 1: `launcher_why`.
find_launcher() {
  local program=$bin/mpirun
  [[ -x $program ]] || program=$(command -v mpirun) || {
    launcher_why="there is no mpirun, neither packed nor in PATH"
    return 1
  }
  mpi_environment
  # Ranks place themselves; and where a container's cores are not those that Open MPI sees, binding fails.
  launcher=("$program" --bind-to none -np)
}

# What the launcher and the ranks do without on one machine: schedulers and remote shells (whose absence some plug-ins take
# for a failure).
plugins_of_clusters='^mca_((ess|plm|ras|schizo)_(slurm|rsh|gridengine|simulator|jsm|flux)|pmix_flux)\.'
libraries_of_plugins='^lib(pmix|munge|mca_common_)'

# pack_plugins FROM FOLDER NOT: the plug-ins that need no library but Open MPI's own, those in FOLDER/lib and those that match
# NOT; so none of an interconnect.
pack_plugins() {
  local plugin name arrow path
  local -A libraries
  for plugin in "$1"/mca_*.so; do
    [[ -e $plugin && ! ${plugin##*/} =~ $plugins_of_clusters ]] || continue
    libraries=()
    while read -r name arrow path _; do
      [[ $arrow == "=>" && ! $name =~ $3 && ! -e $2/lib/$name ]] || continue
      if [[ ! $name =~ $libraries_of_plugins || $path != /* ]]; then continue 2; fi
      libraries[$name]=$path
    done < <(ldd "$plugin")
    cp -L -- "$plugin" "$2/openmpi/plugins/"
    for name in "${!libraries[@]}"; do cp -L -- "${libraries[$name]}" "$2/lib/$name"; done
  done
}

# pack_launcher FOLDER NOT: Open MPI 4's launcher of this machine, as FOLDER/bin/mpirun, into a folder whose lib/ has the
# libraries of the programs. NOT: the libraries that are left to the other machine. Status 1: `launcher_why`.
pack_launcher() {
  local folder=$1 not=$2 program orted plugins texts name arrow path
  launcher_why="Open MPI 4's mpirun, orted and ompi_info are not here"
  program=$(readlink -f -- "$(command -v mpirun)") && orted=$(command -v orted) || return
  [[ ${program##*/} == orterun ]] || return
  plugins=$(ompi_info --path pkglibdir --parsable | sed -n 's/^path:pkglibdir://p') || return
  texts=$(ompi_info --path pkgdatadir --parsable | sed -n 's/^path:pkgdatadir://p') || return
  launcher_why="ompi_info names no folder of plug-ins"
  [[ -d $plugins && -d $texts ]] || return
  mkdir -p -- "$folder"/openmpi/{bin,plugins,texts}
  cp -L -- "$program" "$folder/openmpi/bin/mpirun"
  cp -L -- "$orted" "$folder/openmpi/bin/orted"
  cp -L -- "$texts"/help-*.txt "$folder/openmpi/texts/"
  while read -r name arrow path _; do
    [[ $arrow == "=>" && $path == /* && ! $name =~ $not && ! -e $folder/lib/$name ]] || continue
    cp -L -- "$path" "$folder/lib/$name"
  done < <(ldd "$program" "$orted")
  pack_plugins "$plugins" "$folder" "$not"
  if ! compgen -G "$folder/openmpi/plugins/mca_pml_*" >/dev/null; then
    launcher_why="none of the plug-ins of $plugins can be packed"
    rm -rf -- "$folder/openmpi"
    return 1
  fi
  # The folders are known only where it runs. PMIx's plug-in that compresses stays here: nothing large is sent.
  cat >"$folder/bin/mpirun" <<'END'
#!/bin/sh
here=$(cd -- "$(dirname -- "$0")/.." && pwd)
export OPAL_PREFIX="$here/openmpi" OPAL_PKGLIBDIR="$here/openmpi/plugins" OPAL_PKGDATADIR="$here/openmpi/texts"
export OPAL_SYSCONFDIR="$here/openmpi/etc" PMIX_MCA_pcompress_base_silence_warning=1
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/openmpi/bin/mpirun" "$@"
END
  chmod 755 -- "$folder/bin/mpirun"
  launcher_why=""
}
