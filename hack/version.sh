#!/bin/sh
# version.sh prints the version that git tells of the checkout.
set -eu
cd "$(dirname "$0")/.."
version=$(git describe --tags --always 2>/dev/null || echo dev)
# Files that git does not know may be built in too.
[ -z "$(git status --porcelain 2>/dev/null)" ] || version=$version-dirty
echo "$version"
