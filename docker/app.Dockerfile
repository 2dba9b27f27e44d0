# Builds for Android: the app, and with an NDK the native server and libraries of models.
#
#   docker build -f docker/Dockerfile -t tvm_codl .
#   docker build -f docker/app.Dockerfile -t tvm_codl-app \
#       --build-arg NDK_URL=... --build-arg NDK_SHA256=... [--build-arg SDK_URL=... --build-arg SDK_SHA256=...] .
#
# or without the arguments, and with  -v /path/to/ndk:/opt/android/ndk -v /path/to/sdk:/opt/android/sdk  when it runs.
ARG BASE=tvm_codl
FROM ${BASE}
USER root
WORKDIR /opt/tvm_codl
RUN docker/install/arm64.sh
RUN docker/install/app.sh
ARG NDK_URL
ARG NDK_SHA256
RUN docker/install/android.sh ndk /opt/android/ndk
ARG SDK_URL
ARG SDK_SHA256
RUN docker/install/android.sh sdk /opt/android/sdk
ENV ANDROID_NDK_HOME=/opt/android/ndk
ENV ANDROID_HOME=/opt/android/sdk
USER codl
CMD ["tvm-codl", "build", "--help"]
