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

# shellcheck disable=SC2086 # a list of words
"$(dirname "$0")/packages.sh" host.sh $wanted
