#!/bin/sh
# Installs Debian packages for another script here: packages.sh SCRIPT PACKAGE...  Says what SCRIPT misses where this is not
# root, or not Debian.
set -eu

script=$1
shift
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "$script: missing: $*; install them, or run  sudo docker/install/$script" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@"
}
# The lists of packages may be there, and new enough.
if ! { install "$@" || { apt-get update -qq && install "$@"; }; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
