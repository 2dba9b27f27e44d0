#!/bin/bash
# Builds an offline compiler for phones' GPUs into FOLDER (default: isa): bash docker/install/isa.sh FOLDER.
# It is Mesa's for Mali (Bifrost, Valhall) and Adreno (6xx, 7xx), from Debian's sources, with stand-ins for the hardware and
# a patch that prints what it made of each kernel.  benchmarks/isa.py asks it.  On Debian 12, as root; about ten minutes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=25.0.7
package=$version-2+deb13u1
folder=${1:-isa}
mkdir -p "$folder/build" "$folder/bin" "$folder/lib"
folder=$(cd "$folder" && pwd)

"$here/packages.sh" isa.sh \
  bison cargo clang-15 dpkg-dev flex gcc g++ libclang-15-dev libclang-cpp15-dev libclc-15 libclc-15-dev libdrm-dev libelf-dev \
  libexpat1-dev libllvmspirvlib-15-dev libudev-dev libzstd-dev llvm-15-dev llvm-spirv-15 opencl-headers patch pkg-config \
  python3-venv rustc spirv-tools zlib1g-dev

# The sources are of a later Debian: a line of its own reads them from the mirror that this machine uses.
mirror=$(awk '/^URIs:/{print $2; exit}' /etc/apt/sources.list.d/debian.sources)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
line=/etc/apt/sources.list.d/isa-sources.list
echo "deb-src [signed-by=$keys] $mirror trixie main" > "$line"
trap 'rm -f "$line"' EXIT
apt-get update -qq
cd "$folder/build"
[ -d "mesa-$version" ] || {
  apt-get source --download-only "mesa=$package"
  tar xf "mesa_$version.orig.tar.xz"
  patch -d "mesa-$version" -p1 < "$here/isa/mesa.patch"
}

python3 -m venv tools
tools/bin/pip install -q 'meson>=1.7' mako pyyaml packaging ply ninja
[ -x cargo/bin/bindgen ] || cargo install --root "$PWD/cargo" bindgen-cli
export PATH=$PWD/tools/bin:$PWD/cargo/bin:$PATH
# bindgen takes the newest libclang and the headers of whatever clang is found first: both of one release.
export LIBCLANG_PATH=/usr/lib/llvm-15/lib CLANG_PATH=/usr/bin/clang-15
printf "[binaries]\nllvm-config = '/usr/bin/llvm-config-15'\nbindgen = '%s/cargo/bin/bindgen'\n" "$PWD" > native.ini
off=()
for part in glx egl gbm gles1 gles2 shared-glapi glvnd xmlconfig libunwind lmsensors valgrind gallium-va gallium-vdpau \
  gallium-xa shader-cache; do
  off+=("-D$part=disabled")
done
[ -f out/build.ninja ] || meson setup out "mesa-$version" --native-file native.ini --buildtype release -Db_ndebug=true \
  -Dplatforms= -Dvulkan-drivers= -Dvideo-codecs= -Dopengl=false -Dbuild-tests=false "${off[@]}" \
  -Dgallium-drivers=panfrost,freedreno -Dfreedreno-kmds=msm -Dgallium-rusticl=true \
  -Dgallium-rusticl-enable-drivers=panfrost,freedreno -Dtools=drm-shim -Dllvm=enabled -Dshared-llvm=enabled \
  -Dstatic-libclc=all -Dzstd=enabled
shims=(src/panfrost/drm-shim/libpanfrost_noop_drm_shim.so src/freedreno/drm-shim/libfreedreno_noop_drm_shim.so)
opencl=src/gallium/targets/rusticl/libRusticlOpenCL.so.1
ninja -C out "$opencl.0.0" "${shims[@]}"

cp "out/$opencl.0.0" "$folder/lib/libRusticlOpenCL.so.1"
for shim in "${shims[@]}"; do cp "out/$shim" "$folder/lib/"; done
strip --strip-unneeded "$folder"/lib/*
gcc -O1 -o "$folder/bin/clcompile" "$here/isa/clcompile.c" -ldl
cp "$here"/isa/{stats.sh,front.sh,prelude.h,reorder.py,loops.py,summary.py} "$folder/"
echo "python benchmarks/isa.py zoo:resnet18 --gpu mali-g78 --compiler $folder"
