#!/bin/sh
# What builds and runs arm64 programs on an x86-64 Debian or Ubuntu: the cross compiler, the emulator, and Clang and lld,
# which link libraries for Android.  Quiet and quick where they are there already; needs root where they are not.
set -eu

wanted=""
need() { # a program, the package that brings it
    command -v "$1" >/dev/null 2>&1 || wanted="$wanted $2"
}
need aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
need qemu-aarch64-static qemu-user-static
need clang clang
need ld.lld lld
need ip iproute2
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "arm64.sh: missing:$wanted; install them, or run  sudo docker/install/arm64.sh" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    # shellcheck disable=SC2086 # a list of words
    apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends $wanted
}
# The lists of packages may be there, and new enough.
if ! { install || { apt-get update -qq && install; }; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
