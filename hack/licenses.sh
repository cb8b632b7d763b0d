#!/bin/bash
# licenses.sh check       fails unless every module that the programs link has a licence of an allowed kind
# licenses.sh save DIR    puts their licences and notices, Go's own and Moor's, into DIR
set -euo pipefail
cd "$(dirname "$0")/.."
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}"
# They permit distribution in binary form if their text is distributed with it.
allowed=Apache-2.0,BSD-2-Clause,BSD-3-Clause,ISC,MIT

# licenses runs go-licenses over all programs; what it warns of (assembly, which imports nothing) is of no use here.
licenses() {
	local programs log code=0
	programs=$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./cmd/... ./reference/cmd/...)
	log=$(mktemp)
	go tool -modfile=hack/licenses/go.mod go-licenses "$@" $programs 2>"$log" || code=$?
	[ $code = 0 ] || grep -v 'non-Go code\|^/' "$log" >&2 || true
	rm -f "$log"
	return $code
}

case "${1:-}" in
check) licenses check --allowed_licenses="$allowed" ;;
save)
	dir=${2:?a directory is needed}
	rm -rf "$dir"
	licenses save --save_path="$dir" --ignore=github.com/moor-storage/moor
	mkdir -p "$dir/go" "$dir/moor"
	cp "$(go env GOROOT)/LICENSE" "$dir/go/"
	cp LICENSE NOTICE AUTHORS "$dir/moor/"
	;;
*)
	sed -n '2,3s/^# //p' "$0" >&2
	exit 2
	;;
esac
