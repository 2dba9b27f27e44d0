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

# shellcheck disable=SC2086 # a list of words
"$(dirname "$0")/packages.sh" arm64.sh $wanted
