#!/bin/bash
# Checks what no test checks: that generated files are what the generators
# make, that code is formatted and passes vet and lint, and that imports keep to
# the floors.
set -eu
cd "$(dirname "$0")/.."
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}"
tool() { go tool -modfile=hack/tools/go.mod "$@"; }
failed=0
check() { # check WORDS COMMAND...
	echo "--- $1"
	"${@:2}" || { echo "verify: $1: FAILED" >&2; failed=1; }
}

generated() {
	local copy
	copy=$(mktemp -d)
	cp -a api crds "$copy/"
	hack/generate.sh
	local rc=0
	diff -r "$copy/api" api && diff -r "$copy/crds" crds || { rc=1; echo "run make generate and commit the result"; }
	rm -rf "$copy"
	return $rc
}
formatted() {
	local files
	files=$(git ls-files '*.go' | grep -vE '(zz_generated|\.pb\.go)' | xargs go tool -modfile=hack/tools/go.mod gofumpt -l)
	[ -z "$files" ] || { echo "$files"; return 1; }
}
tidy() { go mod tidy -diff; }
lint() { tool staticcheck ./... && tool staticcheck -tags=api,root,e2e,sanity ./...; }
vet() { go vet ./... && go vet -tags=api,root,e2e,sanity ./...; }

check "generated files" generated
check "format" formatted
check "go.mod" tidy
check "licences of linked modules" hack/licenses.sh check
check "vet" vet
check "lint" lint
check "floors" go test ./internal/archtest
exit $failed
