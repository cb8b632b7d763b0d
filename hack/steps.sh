#!/bin/bash
# Runs the steps named, in order, each with its time, and says at the end how
# each one went. Ends at the first that fails. A bed that a step brought up is
# taken down again, however the step ends.
set -u
cd "$(dirname "$0")/.."
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}" GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
GO="${GO:-go}"
# Tests get this long per package; machines of CI are slow at times.
LIMIT=40m
HUB=/var/lib/moor-dev/machines/hub/var-lib-moor
NODE=/var/lib/kubelet/plugins/csi.snap.nvidia.com/csi.sock

# plain builds programs as the test bed builds Moor's, to share the build cache.
plain() { CGO_ENABLED=0 $GO "$1" -trimpath "${@:2}"; }

moor_dev() { plain build -o bin/moor-dev ./test/cmd/moor-dev && bin/moor-dev "$@"; }

unit() { $GO test -race -shuffle=on -timeout=$LIMIT ./...; }

api() {
	local assets
	assets=$(kube_bin) || return
	KUBEBUILDER_ASSETS=$assets $GO test -race -shuffle=on -tags=api -p=1 -timeout=$LIMIT $(with_tag api)
}

root() {
	hack/apt/install.sh || return
	$GO test -race -shuffle=on -tags=root -p=1 -timeout=$LIMIT $(with_tag root)
}

# with_tag lists the packages that have files with the build tag given.
with_tag() { grep -rl --include='*_test.go' "^//go:build $1$" . | xargs -n1 dirname | sort -u; }

up() {
	brought_up=yes
	moor_dev up --kubelet-profile="${1:-fast}" "${@:2}"
}

bed() { up fast && sanity_on_bed && e2e_on_bed -ginkgo.label-filter='!slow' && by_node -ginkgo.focus="$NODE_MODE_CORE"; }
sanity() { up fast && sanity_on_bed; }
e2e() { up fast && conformance_ready && suite nvme "$SUITE_CORE" && e2e_on_bed && by_node && by_topology; }

# by_node makes the bed anew with hosts that ask for volumes by themselves, and
# runs what is labelled for both modes.
by_node() { up fast --attach-mode=node && e2e_on_bed -ginkgo.label-filter=attach-mode "$@"; }

# by_topology makes the bed anew with storage that is at places, and runs what is
# about places.
by_topology() {
	up fast --topology && e2e_on_bed -ginkgo.label-filter=topology && sanity_on_bed -ginkgo.focus='accessibility|CreateVolume|NodeGetInfo|Identity'
}

# What of that even the quickest run has to try.
NODE_MODE_CORE='asks for its volumes by itself|when the host loses power'

# What of Kubernetes' storage suite takes less than ten minutes on a busy machine:
# each verb of the driver once.
SUITE_CORE='provisioning|volume-expand|snapshottable |volume-modify |read-write-once|volumeMode|fsgroup'

# bench measures. BENCH, if set, is the beginning of the names of the results to
# measure, or several with commas between them. What the extender takes needs no
# bed; failovers are measured on a bed of each mode of attaching.
bench() {
	local wanted="${BENCH:-}" code=0
	KUBEBUILDER_ASSETS=$(kube_bin) || return
	export KUBEBUILDER_ASSETS
	case "$wanted" in
	extender*) ;;
	*) up stock --vfs=64 || return ;;
	esac
	plain run ./test/bench --only="$wanted" || code=$?
	case "${wanted:-failover}" in
	failover* | safety*)
		bin/moor-dev up --help | grep -q -e --attach-mode || return $code
		up stock --vfs=64 --attach-mode=node || return
		plain run ./test/bench --only="${wanted:-failover}" || code=$?
		;;
	esac
	return $code
}

# kube_bin builds Kubernetes' programs, if need be, and says where they are.
kube_bin() {
	local programs=etcd,kube-apiserver,kubectl,kube-scheduler
	moor_dev build --only $programs >&2 && bin/moor-dev build --only $programs --print-bin
}

sanity_on_bed() {
	plain test -c -tags=sanity -o bin/sanity.test ./test/sanity || return
	plain run ./test/kit/apply host deploy/examples/storage.yaml || return
	local access
	for access in mount block; do
		echo "--- csi-sanity, $access"
		bin/moor-dev exec host-1 -- "$PWD/bin/sanity.test" -test.timeout=$LIMIT -ginkgo.no-color -ginkgo.flake-attempts=2 \
			-access=$access -controller="unix://$HUB/csi.sock" -node="unix://$NODE" "$@" || return
	done
}

e2e_on_bed() {
	plain test -c -tags=e2e -o bin/e2e.test ./test/e2e || return
	(cd test/e2e && ../../bin/e2e.test -test.timeout=$LIMIT -ginkgo.no-color -ginkgo.flake-attempts=2 -ginkgo.v "$@")
}

# conformance runs Kubernetes' own storage suite over the whole chain, and tells
# what passed, failed and was skipped, with each reason. DEFINITIONS, if set, are
# those to run, FOCUS a regular expression for the specs, PROCS how many of them run
# at a time.
conformance() {
	local code=0 definition bed="" wanted
	for definition in ${DEFINITIONS:-virtiofs xfs block nvme topology capacity}; do
		case "$definition" in
		topology | capacity) wanted=conformance_bed_with_places ;;
		*) wanted=conformance_bed ;;
		esac
		[ "$bed" = "$wanted" ] || "$wanted" || return
		bed=$wanted
		case "$definition" in
		xfs) suite xfs "${FOCUS:-expan}" ;;
		block) suite block "${FOCUS:-block volmode.*pods on different node}" ;;
		topology | capacity) suite "$definition" "${FOCUS:-\\] $definition }" ;;
		*) suite "$definition" "${FOCUS:-}" ;;
		esac || code=1
	done
	return $code
}

conformance_bed() { up fast && conformance_ready; }

# conformance_bed_with_places has hosts at two places with storage.
conformance_bed_with_places() { up fast --topology && conformance_ready && bin/conformance place host-3 annex; }

# conformance_ready builds the suite, and gives the bed what it asks for.
conformance_ready() {
	(cd hack/kube/conformance && plain test -c -o ../../../bin/conformance.test . &&
		plain build -o ../../../bin/agnhost k8s.io/kubernetes/test/images/agnhost &&
		plain build -o ../../../bin/ginkgo github.com/onsi/ginkgo/v2/ginkgo) || return
	plain build -o bin/conformance ./test/conformance && bin/conformance load bin/agnhost || return
	plain run ./test/kit/apply host deploy/examples/storage.yaml test/conformance/classes.yaml
}

# suite runs the suite with the definition named, or what of it matches the
# regular expression. (The log begins with a warning: the suite was built with
# another ginkgo than Moor's tests. So was the program that runs it.)
suite() {
	local code=0 programs
	programs=$(kube_bin) || return
	echo "--- Kubernetes' storage suite, $1"
	rm -f "bin/conformance-$1.json"
	bin/ginkgo --procs="${PROCS:-4}" --timeout=3h --no-color -v --output-dir=bin --json-report="conformance-$1.json" \
		--focus="\\[Driver:.*(${2:-})" --skip="$(bin/conformance skips "$1")" bin/conformance.test -- \
		-kubeconfig=/run/moor-dev/host.kubeconfig -kubectl-path="$programs/kubectl" -storage.testdriver="$PWD/test/conformance/$1.yaml" >"bin/conformance-$1.log" 2>&1 || code=1
	bin/conformance report "$1" "bin/conformance-$1.json" || code=1
	return $code
}

# finish takes the bed down if one of the steps brought one up, after showing
# what its processes said last, if a step failed.
finish() {
	[ -n "$brought_up" ] && [ -x bin/moor-dev ] && [ -d /run/moor-dev ] || return 0
	if [ "$1" != 0 ]; then
		for log in /run/moor-dev/logs/*.log; do
			echo "--- the end of $log" && tail -n 15 "$log" | cut -c1-400
		done
	fi
	bin/moor-dev down && bin/moor-dev leftovers
}

# run_all is a function so that bash has read the whole file before it begins:
# a checkout that changes meanwhile must not change what runs.
run_all() {
	summary="" code=0 brought_up=""
	for step in "$@"; do
		echo "=== $step"
		begin=$SECONDS
		"$step"
		code=$?
		outcome=ok
		[ $code = 0 ] || outcome="FAILED"
		summary+="$(printf '  %-8s %-7s %4d s' "$step" "$outcome" $((SECONDS - begin)))"$'\n'
		[ $code = 0 ] || break
	done
	finish $code || { code=1; summary+="  taking the test bed down FAILED"$'\n'; }
	printf '\n%s' "$summary"
	[ $code = 0 ] && echo "all steps passed"
	exit $code
}

run_all "$@"
