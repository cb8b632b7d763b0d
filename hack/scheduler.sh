#!/bin/sh
# scheduler.sh DIR: builds moor-scheduler, which is kube-scheduler with Moor's plugin,
# into DIR, stamped with the Kubernetes release that it is of. LDFLAGS are passed on,
# and the tag is that of hack/build.sh.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
cd "$(dirname "$0")/kube/scheduler"
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}"
release=$(${GO:-go} list -m -f '{{.Version}}' k8s.io/kubernetes)
package=k8s.io/component-base/version
minor=${release#v1.}
CGO_ENABLED=0 ${GO:-go} build -trimpath -buildvcs=false -tags=grpcnotrace -o "$dir/moor-scheduler" \
	-ldflags "${LDFLAGS:-} -X $package.gitVersion=$release -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean" .
