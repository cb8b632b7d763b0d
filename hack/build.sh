#!/bin/sh
# build.sh DIR PACKAGE...: builds programs into DIR, stamped with the version and
# the commit that they print with --version. VERSION and COMMIT, if set, are taken
# as they are, else git is asked; LDFLAGS are passed on.
#
# grpcnotrace leaves out the pages of traces of gRPC, which nothing shows: they have
# templates, which call methods by name, for which the linker keeps all methods there are.
set -eu
cd "$(dirname "$0")/.."
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}"
VERSION=${VERSION:-$(hack/version.sh)}
COMMIT=${COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}

package=github.com/moor-storage/moor/internal/daemon/version
dir=$1
shift
mkdir -p "$dir"
CGO_ENABLED=0 ${GO:-go} build -trimpath -buildvcs=false -tags=grpcnotrace -o "$dir/" \
	-ldflags "${LDFLAGS:-} -X $package.version=$VERSION -X $package.commit=$COMMIT" "$@"
