#!/bin/sh
# Generates the Go code of api/plugin/v1 and api/epoch/v1 from their protos. Needs protoc (Debian:
# protobuf-compiler); the Go generators are built at the versions of hack/tools.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
command -v protoc >/dev/null || { echo "protoc not found: install protobuf-compiler" >&2; exit 1; }
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd "$root/hack/tools" && go build -o "$bin/" \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc)
cd "$root"
PATH="$bin:$PATH" protoc -I . \
	--go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative \
	api/plugin/v1/storage_plugin.proto api/epoch/v1/epoch.proto
