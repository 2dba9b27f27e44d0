#!/bin/bash
# stats.sh KERNEL.cl GPU [OpenCL build options…]: one JSON line per kernel, what Mesa's compiler makes of it for a phone's GPU.
# GPU: mali-g72 mali-g51 mali-g31 mali-g52 mali-g76 (Bifrost), mali-g57 -g77 -g78 (Valhall 9), mali-g610 -g710 -g310 (Valhall 10),
#      adreno-610 -618 -630 -640 -650 -660 -690 -730 -740 -750
# Environment: LANES=64 tells the compiler the work-group's size (reqd_work_group_size); PLAIN=1 gives Mesa the source itself,
#      without LLVM's optimisations and with vload split by component; RAW=1 shows what Mesa printed; DISASM=1 with the ISA.
here=$(cd "$(dirname "$0")" && pwd)
file=$1 gpu=$2; shift 2
lib=$here/lib
case $gpu in
  mali-g72) id=6221;; mali-g51) id=7090;; mali-g31) id=7093;; mali-g76) id=7211;; mali-g52) id=7212;;
  mali-g57|mali-g77|mali-g78|mali-g68) id=9091;;
  mali-g610|mali-g710) id=a867;; mali-g310) id=ac74;;
  adreno-*) id=${gpu#adreno-};;
  *) echo "unknown GPU $gpu" >&2; exit 2;;
esac
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
source=$work/kernel.cl
if [ -n "$LANES" ]; then
  sed "s/__kernel void/__kernel __attribute__((reqd_work_group_size($LANES, 1, 1))) void/" "$file" > "$source"
else
  cp "$file" "$source"
fi
if [ -z "$PLAIN" ]; then
  "$here/front.sh" "$source" "$work/kernel.spv" "$@" || exit 1
  source=$work/kernel.spv; set --
fi
export CODL_STATS=1 BIFROST_MESA_DEBUG=shaderdb MESA_SHADER_CACHE_DISABLE=true
[ -n "$DISASM" ] && export BIFROST_MESA_DEBUG=shaderdb,shaders IR3_SHADER_DEBUG=cs,disasm
case $gpu in
  mali-*) shim=$lib/libpanfrost_noop_drm_shim.so; export PAN_GPU_ID=$id RUSTICL_ENABLE=panfrost;;
  *) shim=$lib/libfreedreno_noop_drm_shim.so; export FD_GPU_ID=$id RUSTICL_ENABLE=freedreno;;
esac
LD_PRELOAD=$shim "$here/bin/clcompile" "$lib/libRusticlOpenCL.so.1" "$source" "$@" > "$work/out" 2>&1
status=$?
[ -n "$RAW$DISASM" ] && cat "$work/out" >&2
python3 "$here/summary.py" "$gpu" < "$work/out"
[ $status -eq 0 ] || { cat "$work/out" >&2; exit $status; }
