#!/bin/sh
# What tvm_codl needs of a Debian or Ubuntu before `make install`: Python with venv, a C++ compiler, make; and adb, for phones.
# Quiet and quick where they are there already; needs root where they are not.
set -eu

wanted=""
need() { # a program, the package that brings it
    command -v "$1" >/dev/null 2>&1 || wanted="$wanted $2"
}
need python3 python3
need g++ g++
need make make
[ -n "${CODL_NO_ADB:-}" ] || need adb adb
python3 -c "import ensurepip, venv" 2>/dev/null || wanted="$wanted python3-venv"
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "host.sh: not installed and not root: run  sudo docker/install/host.sh  for$wanted" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list of words
if ! { apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends $wanted; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
