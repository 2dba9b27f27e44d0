#!/bin/sh
# The user of an image: `codl`, who owns tvm_codl's folder and its cache.  Needs root.
set -eu

home=${1:-/opt/tvm_codl}
cache=${2:-/var/cache/tvm_codl}
id codl >/dev/null 2>&1 || useradd --create-home --shell /bin/sh codl
mkdir -p "$home" "$cache"
chown -R codl:codl "$home" "$cache"
