#!/usr/bin/env bash
# Installs what is missing from Debian 12 (or a relative with apt). Without root and without a
# password-less sudo it prints the command to run and exits with 2.
#   jobs/deps.sh               what the program needs
#   jobs/deps.sh --with-tests  also what its tests and benchmarks need
set -euo pipefail

packages=(build-essential cmake ninja-build ccache openmpi-bin libopenmpi-dev libhdf5-dev
  libboost-program-options-dev libdnnl-dev libopenblas-openmp-dev libspdlog-dev libfmt-dev
  nlohmann-json3-dev zlib1g-dev dataset-fashion-mnist)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev shellcheck python3 python3-h5py
  python3-numpy iproute2 hdf5-tools time environment-modules git)

case "${1:-}" in
  "") ;;
  --with-tests) packages+=("${test_packages[@]}") ;;
  *) echo "usage: jobs/deps.sh [--with-tests]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "deps.sh: no apt here; nothing checked. CMake names each missing library with its Spack and" \
    "conda package." >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  # shellcheck disable=SC2016  # a field that dpkg-query fills in
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2> /dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if command -v sudo > /dev/null && sudo -n true 2> /dev/null; then
    as_root=(sudo -n)
  else
    echo "deps.sh: ${#missing[@]} packages are missing and this user may not install them. Run as root:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    echo "or build with libraries from elsewhere: see 'Build by hand' in README.md." >&2
    exit 2
  fi
fi

echo "deps.sh: installing ${missing[*]}"
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
      -o Acquire::Retries=3 install --no-install-recommends "${missing[@]}"
}
if ! install; then
  echo "deps.sh: apt failed; trying once more in 10 seconds" >&2
  sleep 10
  install || { echo "deps.sh: apt could not install: ${missing[*]}" >&2; exit 2; }
fi
