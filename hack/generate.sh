#!/bin/sh
# Generates what is generated: deep copies and the CRDs of both clusters, and of pods as
# volumes, which either can have; and what comes of the Helm chart (hack/chart), in which
# the CRDs are.
# The tools come from hack/tools/go.mod and hack/chart/go.mod; nothing else is needed.
set -eu
cd "$(dirname "$0")/.."
controller_gen() { go tool -modfile=hack/tools/go.mod controller-gen "$@"; }

controller_gen object paths=./api/storage/... paths=./api/moor/... paths=./api/pav/...

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
controller_gen crd paths=./api/storage/... paths=./api/moor/... paths=./api/pav/... output:crd:dir="$out"

rm -rf crds/host crds/dpu crds/pav
mkdir -p crds/host crds/dpu crds/pav
for f in "$out"/*.yaml; do
	case "$f" in
	*_pavprovisioners.yaml | *_podvolumes.yaml | *_podstagings.yaml | *_podrevocations.yaml) mv "$f" crds/pav/ ;;
	*_dpustoragenodes.yaml) cp "$f" crds/host/ && mv "$f" crds/dpu/ ;;
	*_dpu*.yaml | *_powercontrols.yaml) mv "$f" crds/host/ ;;
	*) mv "$f" crds/dpu/ ;;
	esac
done

go -C hack/chart run .
