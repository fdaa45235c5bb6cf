#!/usr/bin/env bash
# tests/gpu/pack, with fakes for cmake, ldd and Open MPI: what it takes along, that this works wherever it is put, and what it refuses.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=support.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/support.sh"
hide_toolkits
cache_toolkit

# Until Open MPI has its turn, there is none that we know.
fake mpirun <<<'exit 1'

# libraries_are LINE…: what ldd says of the programs.
libraries_are() { fake ldd <<<"$(printf 'echo "%s"\n' "$@")"; }
mkdir -p "$work/system"
printf 'library' >"$work/system/one.so"
fake strip <<<'exit 0'
fake cmake <<EOF
[[ \$1 == --build ]] || exit 0
mkdir -p "$copy"/build-cuda/{launch,tests/kernels/cuda}
for name in launch/shardscope launch/libshardscope_cuda.so tests/kernels/cuda/kernels_gpu_test; do
  printf '#!/usr/bin/env bash\n[[ \${0##*/} != shardscope || -f \${LD_LIBRARY_PATH%%%%:*}/libmpi.so.40 ]] || exit 1\n' >"$copy/build-cuda/\$name"
  chmod +x "$copy/build-cuda/\$name"
done
EOF
system=("linux-vdso.so.1 (0x0)" "libm.so.6 => $work/system/one.so (0x0)" "libc.so.6 => $work/system/one.so (0x0)"
  "/lib64/ld-linux-x86-64.so.2 (0x0)" "libcublasLt.so.13 => not found" "libnccl.so.2 => $work/system/one.so (0x0)")

begin "pack: programs and their libraries, without those of CUDA and of the C library"
libraries_are "${system[@]}" "libmpi.so.40 => $work/system/one.so (0x0)" "libstdc++.so.6 => $work/system/one.so (0x0)"
capture "$copy/tests/gpu/pack"
expect_status 0
packed="$copy/build-gpu/packed"
[[ $(<"$work/stdout") == "$packed" ]] || wrong "standard output"
[[ $(cd "$packed" && find . -type f | LC_ALL=C sort | paste -sd ' ') == \
  "./bin/kernels_gpu_test ./bin/libshardscope_cuda.so ./bin/shardscope ./commit ./lib/compiler/libstdc++.so.6 ./lib/libmpi.so.40" ]] ||
  wrong "packed: $(find "$packed" -type f)"
expect_calls cmake "--preset cuda -DSHARDSCOPE_CUDA_TOOLKIT=$toolkit -DSHARDSCOPE_CUDA_PACKAGES=$nvml -DCMAKE_CUDA_ARCHITECTURES=90-real"
expect_calls cmake "--target shardscope kernels_gpu_test"
expect "no launcher is packed, so several ranks are not checked: Open MPI 4's mpirun, orted and ompi_info are not here"

begin "pack: Open MPI's launcher, which finds its own parts wherever it is, without plug-ins of clusters and interconnects"
mpi="$work/open mpi"
mkdir -p "$mpi"/{plugins,texts}
for name in btl_ofi plm_rsh ras_slurm schizo_ompi pml_ob1 pmix_ext3x pml_ucx; do touch "$mpi/plugins/mca_$name.so"; done
touch "$mpi/plugins/libompi_dbg_msgq.so" "$mpi"/texts/{help-orterun.txt,mpicc-wrapper-data.txt}
fake orterun <<'EOF'
printf '%s\n' "${BASH_SOURCE[0]}" "$OPAL_PREFIX" "$OPAL_PKGLIBDIR" "$OPAL_PKGDATADIR" "${LD_LIBRARY_PATH%%:*}" >"$0.saw"
while [[ $1 != */shardscope ]]; do shift; done
exec "$@"
EOF
fake orted <<<'exit 1'
fake ompi_info <<EOF
case \$2 in pkglibdir) echo "path:pkglibdir:$mpi/plugins" ;; pkgdatadir) echo "path:pkgdatadir:$mpi/texts" ;; esac
EOF
rm "$fakes/mpirun"
ln -s "$fakes/orterun" "$fakes/mpirun"
one="=> $work/system/one.so (0x0)"
fake ldd <<EOF
echo "libc.so.6 $one"; echo "libmpi.so.40 $one"
case "\$*" in
  *mca_btl_ofi*) echo "libmca_common_ofi.so.10 $one"; echo "libfabric.so.1 $one" ;;
  *mca_pmix*) echo "libpmix.so.2 $one" ;;
  *mca_pml_ucx*) echo "libmca_common_ucx.so.40 => not found" ;;
  *orterun*) echo "libopen-rte.so.40 $one" ;;
esac
EOF
capture "$copy/tests/gpu/pack"
expect_status 0
expect_not "no launcher is packed"
[[ $(cd "$packed" && find . -type f ! -name '*.saw' | LC_ALL=C sort | paste -sd ' ') == "./bin/kernels_gpu_test ./bin/libshardscope_cuda.so ./bin/mpirun \
./bin/shardscope ./commit ./lib/libmpi.so.40 ./lib/libopen-rte.so.40 ./lib/libpmix.so.2 ./openmpi/bin/mpirun ./openmpi/bin/orted \
./openmpi/plugins/mca_pmix_ext3x.so ./openmpi/plugins/mca_pml_ob1.so ./openmpi/plugins/mca_schizo_ompi.so ./openmpi/texts/help-orterun.txt" ]] ||
  wrong "packed: $(find "$packed" -type f)"
mkdir -p "$work/else where"
mv "$packed" "$work/else where/packed"
capture "$work/else where/packed/bin/mpirun" -np 2 "$work/else where/packed/bin/shardscope"
expect_status 0
there="$work/else where/packed"
[[ $(<"$there/openmpi/bin/mpirun.saw") == \
  "$there/openmpi/bin/mpirun"$'\n'"$there/openmpi"$'\n'"$there/openmpi/plugins"$'\n'"$there/openmpi/texts"$'\n'"$there/lib" ]] ||
  wrong "it saw $(<"$there/openmpi/bin/mpirun.saw")"
mv "$there" "$packed"

begin "pack: a launcher that does not start ranks is a failure; one without plug-ins is not packed"
rm "$mpi/plugins/mca_pml_ob1.so"
capture "$copy/tests/gpu/pack"
expect_status 0
expect "no launcher is packed, so several ranks are not checked: none of the plug-ins of $mpi/plugins can be packed"
[[ ! -e $packed/bin/mpirun && ! -e $packed/openmpi ]] || wrong "half a launcher is packed"
touch "$mpi/plugins/mca_pml_ob1.so"
fake orterun <<<'echo "It looks like orte_init failed for some reason" >&2; exit 213'
capture "$copy/tests/gpu/pack"
expect_status 1
expect "the packed launcher does not work: It looks like orte_init failed"
rm "$fakes"/{mpirun,orterun,orted,ompi_info}
fake mpirun <<<'exit 1'

begin "pack: a library that is not here, a program that does not start, and too many MiB are failures that keep the old pack"
libraries_are "${system[@]}" "libmpi.so.40 => $work/system/one.so (0x0)" "libhwloc.so.15 => not found"
capture "$copy/tests/gpu/pack"
expect_status 1
expect "libraries of the programs are not found here: libhwloc.so.15"
libraries_are "${system[@]}"
capture "$copy/tests/gpu/pack"
expect_status 1
expect "the packed program does not start"
libraries_are "${system[@]}" "libmpi.so.40 => $work/system/one.so (0x0)"
fake du <<<'printf "70\t.\n"'
capture "$copy/tests/gpu/pack" --architectures "80-real;90-real"
expect_status 1
expect "the pack has 70 MiB, and 64 are too many"
expect_calls cmake "-DCMAKE_CUDA_ARCHITECTURES=80-real;90-real"
[[ -f $packed/lib/libmpi.so.40 && -z $(find "$copy/build-gpu" -name '.packed-*') ]] ||
  wrong "the old pack is gone, or half a new one left"
rm "$fakes/du"
echo "all good"
