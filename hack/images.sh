#!/bin/bash
# images.sh ARCH DIR: makes the root directory of each image of deploy/image/images.yaml, for ARCH,
# amd64 or arm64, in DIR/images, without a container engine. All is cross-built: nothing of ARCH is
# started. Beside them in DIR are programs/, what they link in licenses/ and sbom/, and the
# Debian packages of what they call in system/. Needs Debian's apt-get and dpkg-deb.
# VERSION and COMMIT are those of hack/build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=$1 dir=$(realpath -m "$2")
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}" GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"

export VERSION="${VERSION:-$(hack/version.sh)}"
rm -rf "$dir/programs" "$dir/sbom" "$dir/images"
GOARCH=$arch LDFLAGS="-s -w" hack/build.sh "$dir/programs" ./cmd/... ./reference/cmd/...
GOARCH=$arch LDFLAGS="-s -w" hack/scheduler.sh "$dir/programs"
hack/sbom.sh "$VERSION" "$dir/sbom" "$dir"/programs/*
hack/licenses.sh save "$dir/licenses/all"
hack/licenses.sh save "$dir/licenses/moor-scheduler" moor-scheduler
# shellcheck disable=SC2046 # names of packages have no spaces
hack/debian.sh "$arch" "$dir/system" $(go run ./hack/image packages)
go run ./hack/image -arch="$arch" -dir="$dir" make
