#!/bin/sh
# Android's own shell and tools, as Debian has them (mksh, toybox): the tests of `tvm-codl device` then run the scripts for
# phones in these, too.  Quiet and quick where they are there already; needs root where they are not.
set -eu

wanted=""
for program in mksh toybox; do
    command -v "$program" >/dev/null 2>&1 || wanted="$wanted $program"
done
[ -n "$wanted" ] || exit 0

# shellcheck disable=SC2086 # a list of words
"$(dirname "$0")/packages.sh" android_shell.sh $wanted
