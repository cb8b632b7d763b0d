# Moor. `make help` lists what there is to make.
SHELL := /bin/bash
GO ?= go
# Who asks for a volume on a host of the test bed: controller or node.
ATTACH_MODE ?= controller
REGISTRY ?= ghcr.io/moor-storage
PLATFORMS ?= linux/amd64,linux/arm64
export GOTOOLCHAIN ?= local
# -trimpath lets every checkout of one machine share the build cache.
export GOFLAGS ?= -buildvcs=false -trimpath

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the programs into bin/, stamped with the version that git tells
	@hack/build.sh bin ./cmd/... ./reference/cmd/... ./test/cmd/...

.PHONY: scheduler
scheduler: ## build bin/moor-scheduler, which is kube-scheduler with Moor's plugin
	@hack/scheduler.sh bin

.PHONY: image
image: ## build each image for PLATFORMS and push it to REGISTRY (docker)
	set -e; for name in $$($(GO) run ./hack/image names); do \
		docker buildx build --push --platform=$(PLATFORMS) -f deploy/image/Dockerfile --build-arg IMAGE=$$name \
			--build-arg VERSION="$(VERSION)" --build-arg COMMIT="$(COMMIT)" -t $(REGISTRY)/$$name:$(or $(VERSION),dev) .; \
	done

.PHONY: images
images: ## make what the images hold, for ARCH="amd64 arm64", without docker, and start every program of it; PAGE=docs/installing.md: write their sizes there (root)
	@hack/steps.sh images

.PHONY: bin/moor-dev
bin/moor-dev:
	@CGO_ENABLED=0 $(GO) build -trimpath -tags=grpcnotrace -o bin/moor-dev ./test/cmd/moor-dev

.PHONY: demo
demo: bin/moor-dev ## two clusters, three hosts with DPUs, a pod that moves with its volumes (root)
	@bin/moor-dev demo --attach-mode=$(ATTACH_MODE)

.PHONY: up
up: bin/moor-dev ## bring the local test bed up, with Moor on it (root)
	@bin/moor-dev up --attach-mode=$(ATTACH_MODE)

.PHONY: down
down: bin/moor-dev ## take the test bed down; nothing of it stays (root)
	@bin/moor-dev down

.PHONY: test
test: ## every test: unit, API, root, sanity, end-to-end (root)
	@hack/steps.sh root bed+unit,simulate,api

.PHONY: ci
ci: ## what .ci/run calls: verify, every test, one slow fault of each kind (root)
	@hack/steps.sh verify root bed_of_ci+unit,simulate,api

.PHONY: unit
unit: ## tests that need neither root nor an API server
	@hack/steps.sh unit

.PHONY: simulate
simulate: ## play SEEDS=300 schedules of the safety core in virtual time, from SEED=1
	@hack/steps.sh simulate

.PHONY: api
api: ## tests against real API servers
	@hack/steps.sh api

.PHONY: root
root: ## tests with mounts and loop devices (root)
	@hack/steps.sh root

.PHONY: sanity
sanity: ## csi-sanity against the whole chain (root)
	@hack/steps.sh sanity

.PHONY: e2e
e2e: ## end-to-end tests; FOCUS=regexp MODE=controller|node|topology|epochs|dpu-pods|local-driver|keep-functions|two-dpu-clusters: only those; FOCUS=database SEQUENCES=5: with random faults, from SEED on; FOCUS=maintenance FALSE_ALARMS=2h: with false alarms for so long (root)
	@hack/steps.sh e2e

.PHONY: install-test
install-test: ## install, upgrade and uninstall Moor on the test bed by its Helm chart, as docs/installing.md says; IMAGES=bin/images/amd64: with images that make images has left there (root)
	@hack/steps.sh install_test

.PHONY: skew
skew: ## demo, main job and failover on the oldest and the newest Kubernetes that Moor is to run on; RELEASES=oldest: on that alone (root)
	@hack/steps.sh skew

.PHONY: conformance
conformance: ## Kubernetes' own storage suite on the test bed; FOCUS=regexp: only those (root)
	@hack/steps.sh conformance

.PHONY: bench
bench: bin/moor-dev ## measure; BENCH=failover,rss: only that (root)
	@hack/steps.sh bench

.PHONY: scale
scale: bin/moor-dev ## measure with SIZE=200 simulated hosts; FOR=10m: how long at rest, SLOW=1: slows all clocks, DISTURBED=yes: disturbances alone, TIMES=10: objects of that size, WATCH_CACHES=false: API servers that hold no object in memory, ONLY=regexp: some operations alone, WORK=directory: leaves logs there
	@hack/steps.sh scale

.PHONY: model
model: ## check the model of the writer claim (needs spin)
	@hack/model.sh

.PHONY: mutation
mutation: ## switch each safety check off in turn: a test has to catch it (slow); SHARD=1/4: a part of them
	@$(GO) run ./test/mutation $(if $(SHARD),--shard=$(SHARD))

.PHONY: mutation-bed
mutation-bed: ## the same where the proof on the test bed has to catch it (root, slower)
	@$(GO) run ./test/mutation --bed

.PHONY: mutants
mutants: ## make mutants of all code of PACKAGES=pkg/writer: the package's own tests have to catch them (slow)
	@hack/steps.sh mutants

.PHONY: generate
generate: ## generate deep copies, CRDs, gRPC code, and what comes of the Helm chart
	@hack/protoc.sh && hack/generate.sh

.PHONY: chart
chart: ## helm lint with every set of values, and the Helm chart's tests
	@hack/verify.sh chart

.PHONY: verify
verify: ## generated files, build tags, go.mod, licenses, vet, lint, scripts, layers, chart
	@hack/steps.sh verify

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@hack/steps.sh fuzz
