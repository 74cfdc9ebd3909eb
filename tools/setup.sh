#!/usr/bin/env bash
# Installs what a build needs from the packages of Debian (12 or newer) or Ubuntu (24.04 or newer);
# does nothing when all is there. Further packages to have can be named as arguments.
set -euo pipefail

packages=(libcli11-dev nlohmann-json3-dev catch2 libopenblas-pthread-dev libxxhash-dev
  libpcre2-dev libutf8proc-dev "$@")
has() { command -v "$1" >/dev/null; }

# A compiler or build tool counts wherever it comes from.
has g++ || packages+=(g++)
has cmake || packages+=(cmake)
has ninja || has make || packages+=(ninja-build)

if ! has apt-get || ! has dpkg-query; then
  echo "setup: no apt-get here, so nothing is installed. The build needs g++ 12 or newer," \
    "CMake 3.25 or newer, Ninja or make, CLI11, nlohmann/json, Catch2, OpenBLAS, xxHash, PCRE2," \
    "utf8proc." >&2
  exit 0
fi

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true) == installed ]]; }
missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
# Processes on CPUs train together over Gloo, which not every distribution has; a build does without.
gloo=libgloo-dev
lacks_gloo() { ! installed "$gloo" && apt-cache show "$gloo" >/dev/null 2>&1; }
[[ ${#missing[@]} -gt 0 ]] || lacks_gloo || exit 0

install=(apt-get install -y --no-install-recommends)
if [[ $(id -u) -eq 0 ]]; then
  as_root=(env)
elif has sudo && sudo -n true 2>/dev/null; then
  as_root=(sudo env)
elif [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
elif has sudo && [[ -t 0 ]]; then
  as_root=(sudo env)
else
  echo "setup: packages are missing; as root, run: apt-get update && ${install[*]} ${missing[*]}" >&2
  exit 1
fi
as_root+=(DEBIAN_FRONTEND=noninteractive)
options=(-q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A list that cannot be fetched (a third party's, say) need not matter: the install decides.
"${as_root[@]}" apt-get "${options[@]}" update >"$log" 2>&1 || true
if lacks_gloo; then missing+=("$gloo"); fi
echo "setup: installing ${missing[*]}"
if ! "${as_root[@]}" "${install[@]}" "${options[@]}" "${missing[@]}" >>"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup: apt-get could not install ${missing[*]}; its last lines are above" >&2
  exit 1
fi
