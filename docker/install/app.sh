#!/bin/sh
# What builds and tests the Android app without Android Studio on Debian: a JDK, the SDK's tools as Debian packages, and the
# jars of rpc_apps/android_rpc/tools/pom.xml, each checked against its SHA-256.  Quick where they are there already; needs
# root for the packages.  Maven takes the jars from wherever its own settings say; CODL_APP_JARS says where they go.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
tools=$here/../../rpc_apps/android_rpc/tools
jars=${CODL_APP_JARS:-${TVM_CODL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tvm_codl}/app-jars}
plugin=org.apache.maven.plugins:maven-dependency-plugin:3.6.1

wanted=""
need() { # a program, the package that brings it
    command -v "$1" >/dev/null 2>&1 || wanted="$wanted $2"
}
need javac openjdk-17-jdk-headless
need aapt2 aapt
need apksigner apksigner
need zipalign zipalign
need mvn maven
# shellcheck disable=SC2086 # a list of words
[ -z "$wanted" ] || "$here/packages.sh" app.sh $wanted

verified() {
    [ -d "$jars" ] && (cd "$jars" && sha256sum --quiet --strict -c "$tools/jars.sha256" >/dev/null 2>&1)
}
verified && exit 0
mkdir -p "$jars"
mvn -B -q -f "$tools/pom.xml" "$plugin:copy-dependencies" -DoutputDirectory="$jars"
(cd "$jars" && sha256sum --quiet --strict -c "$tools/jars.sha256")
