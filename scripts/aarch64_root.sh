#!/usr/bin/env bash
# Fills a folder with the arm64 libraries and headers that Lucid is built from: aarch64_root.sh DIR.
#
# apt resolves and fetches the packages with lists and a state of its own below DIR, and they are only unpacked: nothing
# on this machine changes, and root is not needed. Does nothing where DIR has them. Exit code 77: they are not to be had.
set -euo pipefail
mkdir -p "${1:?usage: aarch64_root.sh DIR}"
root="$(cd "$1" && pwd)"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# What install_deps.sh installs to build with, but for programs.
mapfile -t packages < <("$here/install_deps.sh" build --list | grep -E -- '^lib.*-dev$|^nlohmann|^prometheus')
packages+=(libstdc++6)
[ "$(cat "$root/packages.txt" 2>/dev/null)" = "${packages[*]}" ] && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
  echo "aarch64_root: this is not Debian; make a root of arm64 libraries by hand" >&2
  exit 77
}

if [ -n "$(ls "$root")" ] && [ ! -e "$root/packages.txt" ]; then
  echo "aarch64_root: $root has other things in it" >&2
  exit 1
fi
touch "$root/packages.txt"
find "$root" -mindepth 1 -maxdepth 1 ! -name packages.txt -exec rm -rf {} +
: >"$root/packages.txt"
apt="$root/var/apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
touch "$apt/status"
cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
END
export APT_CONFIG="$apt/apt.conf"
if ! apt-get update -qq >&2 ||
  ! apt-get install -qq -y --no-install-recommends --download-only "${packages[@]}" </dev/null >"$apt/install.log"; then
  echo "aarch64_root: apt cannot fetch the arm64 packages: ${packages[*]}" >&2
  exit 77
fi
for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
# Absolute links would point into this machine's own root.
find "$root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfnr "$root$(readlink "$link")" "$link"
done
rm -rf "$apt"
echo "${packages[*]}" >"$root/packages.txt"
