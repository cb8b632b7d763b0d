#!/bin/bash
# sbom.sh VERSION DIR PROGRAM...: writes the SBOM of each program, which is of this version, into DIR,
# as PROGRAM.cdx.json: the modules that its file says it was built of, in the format CycloneDX.
set -euo pipefail
version=$1 dir=$(realpath -m "$2")
shift 2
modfile=$(dirname "$(realpath "$0")")/sbom/go.mod
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}"
mkdir -p "$dir"
for program in "$@"; do
	go tool -modfile="$modfile" cyclonedx-gomod bin -json -version "$version" -output "$dir/$(basename "$program").cdx.json" "$program"
done
