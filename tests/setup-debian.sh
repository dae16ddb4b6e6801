#!/usr/bin/env bash
# Install the Debian packages named as arguments, if any of them is missing. Quiet and instant when all are there.
set -euo pipefail

missing=()
for package in "$@"; do
    status=$(dpkg-query --show --showformat '${Status}' "$package" 2>/dev/null || true)
    [[ $status == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "Not Debian: tests that need ${missing[*]} will be skipped." >&2
    exit 0
fi
if [[ $(id -u) -ne 0 ]]; then
    echo "Tests that need ${missing[*]} will be skipped; as root, run: apt-get install ${missing[*]}" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Services must not be started by their packages: the tests start their own on ports of their own.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
