#!/bin/sh
# Installs tvm_codl of this repository into its .venv and builds the native part; what is installed already stays.
set -eu

cd "$(dirname "$0")/../.."
make install
.venv/bin/tvm-codl --version
