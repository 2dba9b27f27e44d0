#!/bin/sh
# Android's own shell and tools, as Debian has them (mksh, toybox): the tests of `tvm-codl device` then run the scripts for
# phones in these, too.  Quiet and quick where they are there already; needs root where they are not.
set -eu

wanted=""
for program in mksh toybox; do
    command -v "$program" >/dev/null 2>&1 || wanted="$wanted $program"
done
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "android_shell.sh: missing:$wanted; install them, or run  sudo docker/install/android_shell.sh" >&2
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
