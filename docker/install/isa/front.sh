#!/bin/bash
# front.sh IN.cl OUT.spv [options]: clang and LLVM's optimisations, then SPIR-V
set -e
here=$(cd "$(dirname "$0")" && pwd); in=$1 out=$2; shift 2
t=$(mktemp -d); trap 'rm -rf "$t"' EXIT
cat "$here/prelude.h" "$in" > "$t/k.cl"
clang-15 -target spir64 -cl-std=CL1.2 -Xclang -finclude-default-header -Xclang -no-opaque-pointers -O2 -fno-vectorize -fno-slp-vectorize -ffp-contract=on -emit-llvm -S "$@" "$t/k.cl" -o "$t/a.ll"
if grep -q 'barrier' "$t/a.ll"; then cp "$t/a.ll" "$t/b.ll"; else sed 's/\bconvergent //g' "$t/a.ll" > "$t/b.ll"; fi
opt-15 -opaque-pointers=0 -O2 -vectorize-loops=false -vectorize-slp=false "$t/b.ll" -o "$t/c.bc"
opt-15 -opaque-pointers=0 -passes=instnamer -S "$t/c.bc" -o - | python3 "$here/reorder.py" > "$t/e.ll"
llvm-as-15 -opaque-pointers=0 "$t/e.ll" -o "$t/e.bc"
[ -n "$KEEP" ] && cp "$t/e.ll" "$KEEP"
llvm-spirv-15 --spirv-max-version=1.2 --spirv-fp-contract=fast "$t/e.bc" -o "$t/e.spv"
# What the translator writes of "unroll 1" is no SPIR-V yet.
llvm-spirv-15 --to-text "$t/e.spv" -o "$t/e.txt"; python3 "$here/loops.py" < "$t/e.txt" > "$t/f.txt"; llvm-spirv-15 --to-binary "$t/f.txt" -o "$out"
