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

# save puts the licences into a directory, and fails if a linked module has none there.
save() {
	local modules module code=0
	modules=$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}' ./cmd/... ./reference/cmd/... | sort -u)
	rm -rf "$1"
	licenses save --save_path="$1" --ignore=github.com/moor-storage/moor
	for module in $modules; do
		if ! find "$1/$module" -iname '*licen[cs]e*' -o -iname 'copying*' 2>/dev/null | grep -q .; then
			echo "module $module has no licence among those collected" >&2
			code=1
		fi
	done
	mkdir -p "$1/go" "$1/moor"
	cp "$(go env GOROOT)/LICENSE" "$1/go/"
	cp LICENSE NOTICE AUTHORS "$1/moor/"
	return $code
}

case "${1:-}" in
check)
	licenses check --allowed_licenses="$allowed"
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	save "$dir/licenses"
	;;
save) save "${2:?a directory is needed}" ;;
*)
	sed -n '2,3s/^# //p' "$0" >&2
	exit 2
	;;
esac
