#!/bin/bash
# licenses.sh check               fails unless every module that the programs link has a licence of an allowed kind
# licenses.sh save DIR [PROGRAM]  puts their licences and notices, Go's own and Moor's, into DIR; of moor-scheduler only if it is named
set -euo pipefail
cd "$(dirname "$0")/.."
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}"
# They permit distribution in binary form if their text is distributed with it.
root=$PWD
allowed=Apache-2.0,BSD-2-Clause,BSD-3-Clause,ISC,MIT

# licenses runs go-licenses over all programs; what it warns of (assembly, which imports nothing) is of no use here.
licenses() {
	local programs log code=0
	programs=$(cd "$module" && go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' $packages)
	log=$(mktemp)
	(cd "$module" && go tool -modfile="$root/hack/licenses/go.mod" go-licenses "$@" --ignore=github.com/moor-storage/moor $programs) 2>"$log" || code=$?
	[ $code = 0 ] || grep -v 'non-Go code\|^/' "$log" >&2 || true
	rm -f "$log"
	return $code
}

# save puts the licences into a directory, and fails if a linked module has none there.
save() {
	local modules linked code=0
	modules=$(cd "$module" && go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}' $packages | sort -u | grep -v '^github.com/moor-storage/moor$')
	rm -rf "$1"
	licenses save --save_path="$1"
	for linked in $modules; do
		if ! find "$1/$linked" -iname '*licen[cs]e*' -o -iname 'copying*' 2>/dev/null | grep -q .; then
			echo "module $linked has no licence among those collected" >&2
			code=1
		fi
	done
	mkdir -p "$1/go" "$1/moor"
	cp "$(go env GOROOT)/LICENSE" "$1/go/"
	cp LICENSE NOTICE AUTHORS "$1/moor/"
	return $code
}

# of says which programs are meant: those of Moor's module, or moor-scheduler, which has one of its own.
of() {
	case "$1" in
	all) module=$root packages="./cmd/... ./reference/cmd/..." ;;
	moor-scheduler) module=$root/hack/kube/scheduler packages=. ;;
	*) echo "there are all and moor-scheduler, not $1" >&2 && exit 2 ;;
	esac
}

case "${1:-}" in
check)
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	for program in all moor-scheduler; do
		of $program
		licenses check --allowed_licenses="$allowed"
		save "$dir/$program"
	done
	;;
save)
	of "${3:-all}"
	save "$(realpath -m "${2:?a directory is needed}")"
	;;
*)
	sed -n '2,3s/^# //p' "$0" >&2
	exit 2
	;;
esac
