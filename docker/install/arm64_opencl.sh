#!/bin/sh
# OpenCL for the emulated arm64 phone: Debian's PoCL and OpenCL loader for arm64, with all that they need, unpacked into a
# folder that is the phone's file system.  Needs no root.  Quick where it is there already.
#   docker/install/arm64_opencl.sh FOLDER
set -eu

root=${1:?the folder of the phone\'s file system}
[ ! -e "$root/.complete" ] || exit 0
sources=/etc/apt/sources.list.d/debian.sources
[ -e "$sources" ] || sources=/etc/apt/sources.list
if ! command -v apt-get >/dev/null || ! grep -qs debian "$sources"; then
    echo "arm64_opencl.sh: this is no Debian: no OpenCL for the emulated phone" >&2
    exit 1
fi

mkdir -p "$root"
root=$(cd "$root" && pwd)
work=$(mktemp -d "$root/.work-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial"
: >"$work/status"
cat >"$work/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Acquire::Languages "none";
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
Dir::Etc::sourcelist "$sources";
Dir::Etc::sourceparts "-";
END
export APT_CONFIG="$work/apt.conf" DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq &&
    apt-get install -y -qq --no-install-recommends --download-only pocl-opencl-icd ocl-icd-libopencl1; } >"$work/log" 2>&1; then
    cat "$work/log" >&2
    exit 1
fi
for package in "$work"/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
# Links to whole paths mean the phone's files, and not this machine's.
find "$root/usr" "$root/lib" -type l -lname '/*' | while read -r link; do
    to=$root$(readlink "$link")
    [ ! -e "$to" ] || ln -sfn "$to" "$link"
done
# TVM's runtime and ours ask for the library by this name.
ln -sf libOpenCL.so.1 "$root/usr/lib/aarch64-linux-gnu/libOpenCL.so"

# PoCL looks for its kernel library beside itself, and asks in a way that the emulator does not lead to the phone's files.
mkdir -p "$root/etc/OpenCL/vendors"
rm -f "$root"/etc/OpenCL/vendors/*
echo "$root/usr/lib/aarch64-linux-gnu/libpocl.so.2" >"$root/etc/OpenCL/vendors/pocl.icd"

# PoCL links each kernel with the ld that it finds by COMPILER_PATH.  It runs on this machine and not on the phone, so
# that the phone's files have other names for it.
mkdir -p "$root/linker"
cat >"$root/linker/ld" <<'END'
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")
for word; do
    shift
    case $word in
    -L/*) [ -d "${word#-L}" ] && [ ! -d "$root${word#-L}" ] || word=-L$root${word#-L} ;;
    /*) [ ! -e "$root$word" ] || word=$root$word ;;
    esac
    set -- "$@" "$word"
done
exec aarch64-linux-gnu-ld --sysroot="$root" "$@"
END
chmod +x "$root/linker/ld"
touch "$root/.complete"
