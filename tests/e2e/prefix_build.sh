#!/usr/bin/env bash
# Builds the program the way a user without root does: libraries unpacked into a private folder,
# which an environment module puts on CMAKE_PREFIX_PATH.
# usage: prefix_build.sh SOURCE_DIR PACKAGE_DIR    (downloaded packages are kept there)
set -euo pipefail
source_dir=$1 debs=$2
work=$(mktemp -d)  # outside the source tree, as a user's libraries are
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
fail() { echo "FAILED: $*" >&2; exit 1; }

if ! command -v apt-get > /dev/null || ! command -v dpkg > /dev/null; then
  echo "skipped: no apt-get here to fetch the packages with"
  exit 77
fi
mkdir -p "$debs" "$prefix/modulefiles"
# Development files and the libraries themselves, by the names this Debian gives them.
wanted='^(libspdlog(-dev|1[0-9.]*)|libfmt(-dev|[0-9]+)|nlohmann-json3-dev|libdnnl(-dev|[0-9]+)|libopenblas(-openmp-dev|0-openmp)|libhdf5(-dev|-[0-9-]+(t64)?)|libboost-program-options[0-9.]+(-dev)?|libboost[0-9.]+-dev|zlib1g(-dev)?)$'
mapfile -t packages < <(dpkg-query -W -f='${Package}\n' | grep -E "$wanted" | sort -u)
((${#packages[@]} >= 12)) || fail "expected at least 12 library packages, found: ${packages[*]}"
for package in "${packages[@]}"; do
  if compgen -G "$debs/${package}_*.deb" > /dev/null; then continue; fi
  if ! (cd "$debs" && apt-get -q -o APT::Sandbox::User=root download "$package" > apt-get.log 2>&1); then
    cat "$debs/apt-get.log"
    echo "skipped: apt-get download $package failed (no network?)"
    exit 77
  fi
done
for deb in "$debs"/*.deb; do
  dpkg -x "$deb" "$prefix"
done

cat > "$prefix/modulefiles/libraries" << MODULE
#%Module1.0
prepend-path CMAKE_PREFIX_PATH $prefix/usr
MODULE
if modulecmd=$(command -v modulecmd); then
  eval "$(MODULEPATH="$prefix/modulefiles" "$modulecmd" bash load libraries)"
else
  echo "note: no modulecmd (package environment-modules); CMAKE_PREFIX_PATH is set by hand"
  export CMAKE_PREFIX_PATH=$prefix/usr
fi
[[ $CMAKE_PREFIX_PATH == "$prefix/usr"* ]] || fail "the module did not set CMAKE_PREFIX_PATH"

# Not optimised: what matters here is what is found, compiled against and linked.
cmake -S "$source_dir" -B "$work/build" -G Ninja -DSIDESTEP_TESTS=OFF -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG=-O0 > "$work/configure.log" ||
  { cat "$work/configure.log"; fail "configuring"; }
for entry in spdlog_DIR fmt_DIR nlohmann_json_DIR Boost_DIR ZLIB_INCLUDE_DIR \
  SIDESTEP_{HDF5,DNNL,BLAS}_{INCLUDE_DIR,LIBRARY}; do
  grep -q "^$entry:[A-Z]*=$prefix/usr/" "$work/build/CMakeCache.txt" ||
    fail "$(grep "^$entry:" "$work/build/CMakeCache.txt" || echo "$entry is not set"), expected below $prefix"
done

cmake --build "$work/build" --target sidestep -j "$(nproc)" > "$work/build.log" ||
  { tail -n 60 "$work/build.log"; fail "building"; }
program=$work/build/sidestep
ldd "$program" > "$work/ldd.txt"
for library in libspdlog libfmt libhdf5 libboost_program_options libdnnl libopenblas; do
  grep -E "^\s*${library}[^ ]* => $prefix/" "$work/ldd.txt" || { cat "$work/ldd.txt"; fail "$library is not the prefix's"; }
done
"$program" --version || fail "the program exits with $?"

# Installed, it still finds them.
cmake --install "$work/build" --prefix "$work/installed" > /dev/null
ldd "$work/installed/bin/sidestep" | grep -E "libspdlog[^ ]* => $prefix/" || fail "the installed program lost its libraries"
