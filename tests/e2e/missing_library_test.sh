#!/usr/bin/env bash
# Hides one library after another from CMake: each is named with what to install.
# usage: missing_library_test.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source_dir=$1 work=$2
rm -rf "$work"
wrong=0

# hide CMAKE-ARGUMENT APT SPACK CONDA
hide() {
  local log=$work.log line lacking=
  if cmake -S "$source_dir" -B "$work" -G Ninja -DSIDESTEP_TESTS=ON \
    -U "CMAKE_DISABLE_FIND_PACKAGE_*" -U CMAKE_IGNORE_PATH "$1" > "$log" 2>&1; then
    echo "FAILED: configured with $1" >&2
    wrong=1
  fi
  for line in "apt install $2" "spack install $3" "conda install $4" CMAKE_PREFIX_PATH; do
    grep -qF -- "$line" "$log" ||
      { echo "FAILED: with $1 the message lacks '$line'" >&2; lacking=yes; }
  done
  if [[ -n ${lacking:-} ]]; then tail -n 12 "$log" >&2; wrong=1; fi
}
# Those found by file name come first, before anything is in the cache.
hide "-DCMAKE_IGNORE_PATH=$(echo /usr/{,local/}include/hdf5/{serial,openmpi} | tr ' ' ';')" libhdf5-dev hdf5 hdf5
hide "-DCMAKE_IGNORE_PATH=/usr/include;/usr/local/include" libdnnl-dev onednn onednn
hide -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON libopenmpi-dev openmpi openmpi
hide -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON libboost-program-options-dev boost libboost-devel
hide -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON libfmt-dev fmt fmt
hide -DCMAKE_DISABLE_FIND_PACKAGE_spdlog=ON libspdlog-dev spdlog spdlog
hide -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON nlohmann-json3-dev nlohmann-json nlohmann_json
hide -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON zlib1g-dev zlib-ng zlib
hide -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON libgtest-dev googletest gtest
if ! cmake -S "$source_dir" -B "$work" -U "CMAKE_DISABLE_FIND_PACKAGE_*" > "$work.log" 2>&1; then
  cat "$work.log"
  echo "FAILED: nothing hidden, yet not configured" >&2
  wrong=1
fi
rm -rf "$work" "$work.log"
exit "$wrong"
