#!/usr/bin/env bash
# Installs the Debian packages that are missing: install_deps.sh build|test|cross [--list].
# Does nothing, quickly, where all are there. Without the rights to install it prints the command and fails. With --list
# it prints the packages and installs none.
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config
  libcli11-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libexpected-dev
  libpcre2-dev libutf8proc-dev liblzma-dev libhwloc-dev libedit-dev
  libcurl4-openssl-dev libssl-dev libboost1.81-dev prometheus-cpp-dev libyaml-cpp-dev libxxhash-dev libgtest-dev libgmock-dev
  python3 python3-pip ca-certificates)
test=(libbenchmark-dev python3-venv clang-14 libclang-rt-14-dev clang-format-14 binutils git)
cross=(g++-aarch64-linux-gnu qemu-user)  # test_aarch64.sh

case "${1:-}" in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  cross) wanted=("${cross[@]}") ;;
  *) echo "usage: install_deps.sh build|test|cross [--list]" >&2; exit 2 ;;
esac
if [ "${2:-}" = --list ]; then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is not Debian; make sure that these are there: ${wanted[*]}" >&2
  exit 0
fi
installed="$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' 2>/dev/null | sed -n 's/^ii *//p')"
missing=()
for package in "${wanted[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  {
    echo "These Debian packages are missing, and installing them needs root. Run this, then try again:"
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  } >&2
  exit 1
fi
echo "Installing Debian packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
