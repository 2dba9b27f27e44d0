#!/bin/sh
# The Android NDK and SDK, from what the user gives; no address is known here.
#
#   android.sh ndk FOLDER    with NDK_URL and NDK_SHA256
#   android.sh sdk FOLDER    with SDK_URL and SDK_SHA256 (a zip of an SDK: platforms/, build-tools/)
#
# A FOLDER that holds one already (a mounted one, or of an earlier run) is only looked at.  Without a URL nothing is
# installed, and it is said how to mount one.
set -eu

usage() {
    echo "usage: android.sh ndk|sdk FOLDER   (NDK_URL and NDK_SHA256, or SDK_URL and SDK_SHA256, in the environment)" >&2
    exit 2
}
[ "$#" = 2 ] || usage
what=$1 folder=$2
case $what in
    ndk) url=${NDK_URL:-} sum=${NDK_SHA256:-} name=NDK mark=source.properties ;;
    sdk) url=${SDK_URL:-} sum=${SDK_SHA256:-} name=SDK mark=platforms ;;
    *) usage ;;
esac

if [ -e "$folder/$mark" ]; then
    echo "$name: $folder"
    exit 0
fi
if [ -z "$url" ]; then
    echo "$name: none; build with ${name}_URL and ${name}_SHA256, or run with one mounted at $folder"
    exit 0
fi
if ! printf '%s\n' "$sum" | grep -Eq '^[0-9a-f]{64}$'; then
    echo "android.sh: ${name}_SHA256 is not the sha256 of ${name}_URL: '$sum'" >&2
    exit 1
fi
for program in curl unzip; do
    command -v "$program" >/dev/null 2>&1 || missing="${missing:-} $program"
done
if [ -n "${missing:-}" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "android.sh: not installed and not root:$missing" >&2
        exit 1
    fi
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ca-certificates $missing >/dev/null
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/.unpacking-XXXXXX")
trap 'rm -rf "$work"' EXIT
curl --proto '=https,file' --fail --silent --show-error --location --output "$work/archive.zip" "$url"
if ! echo "$sum  $work/archive.zip" | sha256sum --check --status; then
    echo "android.sh: what $url holds is not ${name}_SHA256 $sum" >&2
    exit 1
fi
unzip -q "$work/archive.zip" -d "$work/out"
# The archive's one top folder, or itself.
for top in "$work"/out/*; do break; done
[ -e "$work/out/$mark" ] && top=$work/out
if [ ! -e "$top/$mark" ]; then
    echo "android.sh: $url holds no $name: no $mark in it" >&2
    exit 1
fi
for entry in "$top"/*; do mv "$entry" "$folder/"; done
echo "$name: $folder"
