#!/usr/bin/env bash
# Builds, and puts all that a machine with a GPU needs into one folder that may be moved there:
#   ./bundle.sh [OUT]          default build/bundle; OUT.tar.xz is the same, packed
# It holds the programs, the kernels' sources, the shared libraries that a bare machine lacks, and NVRTC
# where this machine has it. That machine needs Linux with a glibc no older than this one's, and for its
# GPU the NVIDIA driver. There, OUT/test-gpu.sh runs the tests, and OUT/bench-gpu.sh and study-gpu.sh
# measure models, and the study's tables; OUT/bench/compare has other systems beside them. OUT/mutants.sh needs
# no GPU but g++: how many mutants of the kernels the admission gate finds.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-build/bundle}
mkdir -p build
scripts/build.sh release agentcompile agentcompile_library gpu_tests mutants >build/bundle.log 2>&1 || {
  cat build/bundle.log >&2
  exit 1
}

# Only what this script made is replaced.
if [ -e "$out" ] && [ ! -e "$out/share/agentcompile" ]; then
  echo "bundle.sh: $out exists and is no bundle" >&2
  exit 2
fi
rm -rf "$out"
cmake --install build/release --prefix "$out" --strip >>build/bundle.log
cp scripts/test-gpu.sh scripts/bench-gpu.sh scripts/study-gpu.sh scripts/study-steps-gpu.sh scripts/study-live.sh scripts/mutants.sh "$out"
mkdir "$out/share/mutants"
cp tests/mutants/*.txt "$out/share/mutants"
mkdir "$out/bench"
cp bench/compare_transformers.py bench/hollow_model.py bench/library_floor.py "$out/bench"
cp -r tests/data/configs bench/layers bench/compare "$out/bench"

# Of what the programs load, all but the C library, which must be the machine's own.
ldd "$out"/bin/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  while read -r library; do
    case ${library##*/} in
      libagentcompile_host.so | lib[cm].so.6 | libpthread.so* | libdl.so* | librt.so* | \
        libresolv.so*) ;;
      *) cp -L "$library" "$out/lib" ;;
    esac
  done

# The same places in which the program looks (src/build/cuda_folders.cc); the first one is taken.
nvrtc=
for file in ${CUDA_HOME:+"$CUDA_HOME"/lib64/libnvrtc.so.1[2-9]} \
  .venv/lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.1[2-9] \
  /usr/local/cuda*/lib64/libnvrtc.so.1[2-9] /usr/lib/*/libnvrtc.so.1[2-9]; do
  [ -e "$file" ] && nvrtc=$file && break
done
if [ -n "$nvrtc" ]; then
  cp -L "$nvrtc" "$out/lib"
  for file in "${nvrtc%/*}"/libnvrtc-builtins.so.*.*; do
    case $file in *.so.*.*.*) ;; *) cp -L "$file" "$out/lib" ;; esac
  done
else
  echo "bundle.sh: no NVRTC here: the other machine must have it (CUDA_HOME)" >&2
fi

# NVRTC packs to a third of its size.
tar -C "$(dirname "$out")" -c "$(basename "$out")" | xz -T0 -3 >"$out.tar.xz"
echo "$out: $(du -sm "$out" | cut -f1) MB; $out.tar.xz: $(du -sm "$out.tar.xz" | cut -f1) MB"
