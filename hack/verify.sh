#!/bin/bash
# Checks what no test checks: that generated files are what the generators make,
# that no file has a build tag unknown here, that go.mod is tidy, that the licenses of
# what is linked permit it, that code and scripts pass vet and the linters, that
# imports keep to the layers, and that the Helm chart holds. Checks can be named: hack/verify.sh lint
# The tools are those of hack/tools and hack/lint, and of hack/apt/verify.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}" GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
# All build tags that files of Moor have, so that none of them goes unchecked.
TAGS=api,bed,e2e,root,sanity
CHECKS="generated tags tidy licenses vet lint shell layers chart"

# generated generates everything again in a copy of the checkout, and compares.
generated() {
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
		if [ -e "$file" ]; then printf '%s\0' "$file"; fi # not what was deleted and is not committed yet
	done | xargs -0 cp -a --parents -t "$copy"
	git -C "$copy" init -q
	git -C "$copy" add -A
	same_protoc
	"$copy/hack/protoc.sh"
	"$copy/hack/generate.sh"
	git -C "$copy" add -A -N
	git -C "$copy" diff --exit-code --stat -p || {
		echo "these files are not what the generators make: run make generate and commit the result"
		return 1
	}
}

# same_protoc says in advance why files may differ without a change.
same_protoc() {
	local made here
	made=$(find api -name '*.pb.go' -exec sed -nE 's|^//[[:space:]-]*protoc +v||p' {} + | sort -u)
	here=$(protoc --version)
	[ "libprotoc $made" = "$here" ] || echo "note: *.pb.go was made by protoc $made, and here is $here: that alone makes them differ"
}

# tags fails if a file has a build tag that this script does not know.
tags() {
	local known found
	known=$(tr , '\n' <<<"$TAGS,linux,race,tools" | sort)
	found=$(git grep -hoE '^//go:build [a-z0-9]+$' -- '*.go' | cut -d' ' -f2 | sort -u)
	found=$(comm -13 <(echo "$known") <(echo "$found"))
	[ -z "$found" ] || { echo "hack/verify.sh does not check files with the build tags:" "$found"; return 1; }
}

tidy() {
	go mod tidy -diff
	go -C hack/kube/scheduler mod tidy -diff # which requires what Moor requires
}

licenses() {
	hack/licenses.sh check
}

vet() {
	go vet ./...
	go vet -tags=$TAGS ./...
}

lint() {
	# It would fail while it runs in another clone.
	go tool -modfile=hack/lint/go.mod golangci-lint run --allow-parallel-runners --build-tags=$TAGS
}

shell() {
	git ls-files -z -- '*.sh' .ci/run | xargs -0 shellcheck --severity=warning
}

layers() {
	go test ./internal/archtest
}

# chart lints the Helm chart with every set of values of its ci, and runs its tests: that
# its defaults are the manifests, and that contradictions are refused in words.
chart() {
	go -C hack/chart mod tidy -diff
	go -C hack/chart vet ./...
	go -C hack/chart run . lint
	go -C hack/chart test ./...
}

# Each check is a process of its own: in a function that is called in a condition
# bash ignores set -e, and a tool that fails goes unnoticed.
if [ $# -gt 0 ]; then
	for check in "$@"; do "$check"; done
	exit
fi
failed=""
for check in $CHECKS; do
	echo "--- $check"
	"$0" "$check" || failed+=" $check"
done
[ -z "$failed" ] || { echo "verify: FAILED:$failed" >&2; exit 1; }
