#!/bin/bash
# Runs the steps named, in order, and says at the end how each one and each part
# of it went and how long it took. Ends at the first that fails. However it ends,
# and if it is interrupted too, what it started is ended, and a bed that it brought
# up is taken down.
#
# "bed+unit,api" are lanes: bed runs, and beside it unit and then api, whose output
# is shown when both lanes have ended.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export GOTOOLCHAIN="${GOTOOLCHAIN:-local}" GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"
# A test that lacks a tool fails here, where the tools can be installed.
export MOOR_NO_SKIP=1
GO="${GO:-go}"
# Tests get this long per package; machines of CI are slow at times.
LIMIT=40m
# Suites of specs get this long each, from ginkgo, which says what spec was at work then.
SPECS=(-test.timeout=0 -ginkgo.timeout=70m -ginkgo.no-color -ginkgo.fail-on-empty)
HUB=/var/lib/moor-dev/machines/hub/var-lib-moor
NODE=/var/lib/kubelet/plugins/csi.snap.nvidia.com/csi.sock

# plain builds programs as the test bed builds Moor's, to share the build cache; with TAGS too.
plain() { CGO_ENABLED=0 $GO "$1" -trimpath -tags="grpcnotrace${TAGS:+,$TAGS}" "${@:2}"; }

tool() { $GO tool -modfile=hack/tools/go.mod "$@"; }

moor_dev() { plain build -o bin/moor-dev ./test/cmd/moor-dev && bin/moor-dev "$@"; }

# tested NAME FLAGS... runs go test in an order that SEED repeats, and fails too if a
# test was skipped for a reason that test/skips does not know.
tested() {
	local code=0 seed=${SEED:-$RANDOM$RANDOM} record="bin/test-$1.json"
	mkdir -p bin
	echo "the order of the tests is that of SEED=$seed"
	failures_of tool gotestsum --format=pkgname --hide-summary=skipped --jsonfile="$record" -- -race -shuffle="$seed" -timeout=$LIMIT "${@:2}" || code=1
	plain run ./test/skips/gotest "$record" || code=1
	return $code
}

# in_memory runs a command whose temporary files are in memory, where there are 4 GB of room;
# what Go builds is not.
in_memory() {
	local room build=${GOTMPDIR:-${TMPDIR:-/tmp}}
	room=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)
	if [ "${room:-0}" -lt 4000000 ]; then "$@"; else GOTMPDIR=$build TMPDIR=/dev/shm "$@"; fi
}

unit() { in_memory tested unit ./...; }

# simulate plays SEEDS schedules, from SEED on.
simulate() {
	$GO test -count=1 -timeout=0 ./test/simulate -run='^TestSimulate$' -seeds="${SEEDS:-300}" -seed="${SEED:-1}"
}

api() {
	local assets
	assets=$(kube_bin) || return
	# shellcheck disable=SC2046 # names of packages have no spaces
	KUBEBUILDER_ASSETS=$assets in_memory tested api -tags=api -p=2 $(with_tag api)
}

root() {
	hack/apt/install.sh || return
	# shellcheck disable=SC2046
	tested root -tags=root -p=1 $(with_tag root)
}

# fuzz runs each fuzz target for FUZZTIME. What it minimizes is bounded, or a short
# time would be spent on that alone.
fuzz() {
	local code=0 package target
	for package in $(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
		for target in $($GO test -list='^Fuzz' "./$package" | grep '^Fuzz'); do
			part "$package $target" $GO test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-30s}" -fuzzminimizetime=10x "./$package" || code=1
		done
	done
	return $code
}

# mutants makes mutants of all code of PACKAGES, with commas between them, which the
# packages' own tests have to catch.
mutants() { $GO run ./test/mutation --generate="${PACKAGES:-pkg/writer}" ${ONLY:+--only="$ONLY"}; }

verify() { hack/apt/install.sh hack/apt/verify.txt && hack/verify.sh; }

# with_tag lists the packages that have files with the build tag given.
with_tag() { grep -rl --include='*_test.go' "^//go:build $1$" . | xargs -n1 dirname | sort -u; }

# up brings the bed up anew, and leaves word of it for the end of this script.
up() {
	touch "$notes/bed"
	part "bed up${2:+ $2}" failures_of moor_dev up --kubelet-profile="${1:-fast}" ${KUBERNETES:+--kubernetes="$KUBERNETES"} "${@:2}"
}

bed() { bed_without 'slow'; }

# bed_of_ci runs one slow fault of each kind too.
bed_of_ci() { bed_without 'slow && !ci'; }

# bed_without LABELS is everything on the bed, but for the specs with these labels;
# and the core of it with hosts that ask for volumes by themselves.
bed_without() {
	part "the bed itself" bed_itself && up fast --pods && sanity_on_bed && e2e_on_bed "attach mode controller" -ginkgo.label-filter="!($1)" && by_node -ginkgo.focus="$NODE_MODE_CORE"
}

# bed_itself tests the bed, which its tests bring up and take down.
bed_itself() {
	touch "$notes/bed"
	kube_bin >/dev/null && tested bed -tags=bed -run=TestBed ./test/devcluster
}

sanity() { up fast && sanity_on_bed; }

e2e() {
	if [ -n "${FOCUS:-}${MODE:-}" ]; then e2e_focused; else e2e_whole; fi
}

e2e_whole() { up fast --pods && conformance_ready && suite nvme "$SUITE_CORE" && by_controller && by_node && by_topology && by_epochs && by_dpu_pods && by_local_driver && by_keep_functions && by_two_dpu_clusters; }

# by_controller runs everything on a bed that is up in the default mode. The database, which
# takes long, has a time limit of its own.
by_controller() { e2e_on_bed "attach mode controller" -ginkgo.label-filter='!database' && e2e_on_bed database -ginkgo.label-filter=database; }

# e2e_focused runs the specs whose names match the regular expression FOCUS on a bed
# of one MODE: controller (the default), node, topology, epochs, dpu-pods, local-driver,
# keep-functions or two-dpu-clusters; of those that are for that mode. One has to match.
# Without FOCUS it runs what e2e_whole runs in that mode. SEQUENCES is how many random sequences
# of faults the specs of the database play, from SEED on, and FALSE_ALARMS for how long hosts that
# live are alarmed; they may take as long as they do.
e2e_focused() {
	local mode=${MODE:-controller} more=()
	[ -z "${SEQUENCES:-}" ] || more+=(-sequences="$SEQUENCES" -ginkgo.timeout=24h)
	[ -z "${FALSE_ALARMS:-}" ] || more+=(-false-alarms="$FALSE_ALARMS" -ginkgo.timeout=24h)
	[ -z "${SEED:-}" ] || more+=(-seed="$SEED")
	case "$mode" in
	controller) [ -n "${FOCUS:-}" ] || { up fast --pods && by_controller; return; } ;;
	node | topology | epochs | dpu-pods | local-driver | keep-functions | two-dpu-clusters) [ -n "${FOCUS:-}" ] || { "by_${mode//-/_}"; return; } ;;
	esac
	case "$mode" in
	controller) up fast --pods ;;
	node) more+=(-ginkgo.label-filter=attach-mode) && up fast --attach-mode=node ;;
	topology | epochs | dpu-pods | local-driver | keep-functions | two-dpu-clusters) more+=(-ginkgo.label-filter="$mode") && up fast "--$mode" ;;
	*) echo "MODE is controller, node, topology, epochs, dpu-pods, local-driver, keep-functions or two-dpu-clusters, not $mode" >&2 && return 2 ;;
	esac && e2e_on_bed "$mode" -ginkgo.focus="$FOCUS" "${more[@]}"
}

# by_node makes the bed anew with hosts that ask for volumes by themselves, and
# runs what is labelled for both modes.
by_node() { up fast --attach-mode=node && e2e_on_bed "attach mode node" -ginkgo.label-filter=attach-mode "$@"; }

# by_topology makes the bed anew with storage that is at places, and runs what is
# about places.
by_topology() {
	up fast --topology && e2e_on_bed topology -ginkgo.label-filter=topology && sanity_on_bed -ginkgo.focus='accessibility|CreateVolume|NodeGetInfo|Identity'
}

# by_epochs makes the bed anew with storage that knows epochs, and runs what is about them.
by_epochs() { up fast --epochs && e2e_on_bed epochs -ginkgo.label-filter=epochs; }

# by_dpu_pods makes the bed anew with DPUs that run pods, and runs what is about them.
by_dpu_pods() { up fast --dpu-pods && e2e_on_bed dpu-pods -ginkgo.label-filter=dpu-pods; }

# by_local_driver makes the bed anew with the driver of one machine, and runs what is about it:
# csi-sanity too, on its one socket.
by_local_driver() {
	up fast --local-driver && local_sanity && e2e_on_bed local-driver -ginkgo.label-filter=local-driver
}

# by_keep_functions makes the bed anew with functions that outlive their SNAP service, and runs
# what is about that.
by_keep_functions() { up fast --keep-functions && e2e_on_bed keep-functions -ginkgo.label-filter=keep-functions; }

# by_two_dpu_clusters makes the bed anew with two DPU clusters behind the host cluster, and runs
# what is about them, in each mode of attaching.
by_two_dpu_clusters() {
	local mode
	for mode in controller node; do
		up fast --two-dpu-clusters --attach-mode="$mode" && e2e_on_bed "two-dpu-clusters, attach mode $mode" -ginkgo.label-filter=two-dpu-clusters || return
	done
}

# skew tries the oldest and the newest release of Kubernetes that Moor is to run on: the
# demo, the main job and the failovers of a host, in both modes of attaching.
skew() {
	local code=0 KUBERNETES FOCUS='the main job|when the host loses power'
	for KUBERNETES in ${RELEASES:-oldest newest}; do
		touch "$notes/bed"
		part "demo on Kubernetes $KUBERNETES" moor_dev demo --kubernetes="$KUBERNETES" && MODE=controller e2e_focused && MODE=node e2e_focused || code=1
	done
	return $code
}

# install_test makes a bed without Moor, and installs, upgrades and uninstalls Moor on it by its
# Helm chart, as docs/installing.md says. IMAGES=bin/images/amd64 takes what make images has left
# there, which has to be of this checkout; else it makes the images itself. One of five hosts is of
# the control plane of the host cluster, so that each of two DPU clusters has two.
install_test() {
	up stock --bare --dpu-pods && TAGS=e2e plain test -c -o bin/install.test ./test/install || return
	part "Moor as it is installed" installs '!two-dpu-clusters' &&
		up stock --bare --dpu-pods --two-dpu-clusters --nodes=5 && part "two DPU clusters" installs two-dpu-clusters
}

# installs runs the specs of the installation with these labels.
installs() {
	failures_of in_directory test/install ../../bin/install.test "${SPECS[@]}" -ginkgo.v -ginkgo.label-filter="$1"
}

# images makes what the images hold, for each of ARCH, starts every program of it, and tells how
# large they are, in PAGE too.
images() {
	local arch
	hack/apt/install.sh hack/apt/images.txt && plain build -o bin/image ./hack/image || return
	for arch in ${ARCH:-amd64 arm64}; do
		part "images of $arch" hack/images.sh "$arch" "bin/images/$arch" &&
			part "programs of $arch" bin/image -arch="$arch" -dir="bin/images/$arch" try &&
			bin/image -arch="$arch" -dir="bin/images/$arch" -page="${PAGE:-}" sizes || return
	done
}

# What of that even the quickest run has to try.
NODE_MODE_CORE='asks for its volumes by itself|when the host loses power'

# What of Kubernetes' storage suite takes less than ten minutes on a busy machine:
# each verb of the driver once.
SUITE_CORE='provisioning|volume-expand|snapshottable |volume-modify |read-write-once|volumeMode|fsgroup'

# bench measures. BENCH, if set, is the beginning of the names of the results to
# measure, or several with commas between them. What the extender and the journal take
# needs no bed; failovers are measured on a bed of each mode of attaching, and in each mode
# some on a bed that records beneath its storage target; epochs on one whose storage knows
# them, and a SNAP that is killed with its state on one whose functions outlive it; volumes that pods
# stage on a bed whose hosts, and on one whose DPUs run such pods. What fails in one does not keep the others from being measured.
bench() {
	local wanted="${BENCH:-}" code=0 name mode recorded="" bedless=() controller=() node=() epochs=() pods=() dpupods=() kept=()
	KUBEBUILDER_ASSETS=$(kube_bin) || return
	export KUBEBUILDER_ASSETS
	[ -n "$wanted" ] || { controller=("") node=(failover) recorded=yes epochs=(epochs) pods=(podvolumes) dpupods=(podvolumes.dpu) kept=(failover.snap_killed_with_state); }
	for name in ${wanted//,/ }; do
		case "$name" in
		extender* | journal* | podvolumes.templates*) bedless+=("$name") ;;
		failover.recorded*) recorded=yes ;;
		failover.snap_killed_*) kept+=("$name") ;;
		epochs*) epochs+=("$name") ;;
		podvolumes.dpu*) dpupods+=("$name") ;;
		podvolumes) pods+=("$name") && dpupods+=("$name") ;;
		podvolumes*) pods+=("$name") ;;
		failover*) controller+=("$name") node+=("$name") ;;
		safety*) controller+=("$name") node+=("$name") recorded=yes ;;
		*) controller+=("$name") ;;
		esac
		[ "$name" != failover ] || { recorded=yes && kept+=(failover.snap_killed_with_state); }
	done
	[ ${#bedless[@]} = 0 ] || measure "${bedless[@]}" || code=1
	[ ${#controller[@]} = 0 ] || bench_on controller "${controller[@]}" || code=1
	[ ${#node[@]} = 0 ] || bench_on node "${node[@]}" || code=1
	[ ${#epochs[@]} = 0 ] || { up stock --epochs && measure "${epochs[@]}"; } || code=1
	[ ${#pods[@]} = 0 ] || { up stock --pods && measure "${pods[@]}"; } || code=1
	[ ${#dpupods[@]} = 0 ] || { up stock --dpu-pods && measure "${dpupods[@]}"; } || code=1
	[ ${#kept[@]} = 0 ] || { up stock --vfs=64 --keep-functions && measure "${kept[@]}"; } || code=1
	[ -n "$recorded" ] || return $code
	for mode in controller node; do
		up stock --attach-mode="$mode" --record-below && measure failover.recorded_below || code=1
	done
	return $code
}

# bench_on MODE NAMES... measures on a bed with that mode of attaching.
bench_on() { up stock --vfs=64 --attach-mode="$1" && measure "${@:2}"; }

# scale measures with SIZE simulated hosts, which it watches at rest for FOR; SLOW
# slows all clocks by that factor where the machine does not carry the beats.
# DISTURBED=yes measures disturbances alone, ONLY=regexp those operations alone. TIMES
# makes objects that many times as large as they are. WATCH_CACHES=false has the API servers
# hold no objects in memory, where the machine has too little of it. WORK is a directory in
# which the logs stay.
scale() {
	KUBEBUILDER_ASSETS=$(kube_bin) || return
	export KUBEBUILDER_ASSETS
	hack/build.sh bin ./cmd/... && plain run ./test/scale --size="${SIZE:-200}" --for="${FOR:-10m}" --slow="${SLOW:-1}" ${DISTURBED:+--disturbed} ${TIMES:+--times="$TIMES"} ${ONLY:+--only="$ONLY"} --watch-caches="${WATCH_CACHES:-true}" ${WORK:+--work="$WORK"}
}

# measure NAMES... runs the benchmarks with these names on the bed that is up.
measure() {
	local IFS=,
	plain run ./test/bench --only="$*"
}

# kube_bin builds Kubernetes' programs, if need be, and says where they are.
kube_bin() {
	local programs=etcd,kube-apiserver,kubectl,kube-scheduler
	moor_dev build --only $programs >&2 && bin/moor-dev build --only $programs --print-bin
}

sanity_on_bed() {
	TAGS=sanity plain test -c -o bin/sanity.test ./test/sanity || return
	plain run ./test/kit/apply host deploy/examples/storage.yaml || return
	local access
	for access in mount block; do
		part "csi-sanity, $access" failures_of bin/moor-dev exec host-1 -- "$PWD/bin/sanity.test" "${SPECS[@]}" \
			-access="$access" -controller="unix://$HUB/csi.sock" -node="unix://$NODE" "$@" || return
	done
}

# local_sanity holds the driver of one machine, as it is deployed, to csi-sanity.
local_sanity() {
	TAGS=sanity plain test -c -o bin/sanity.test ./test/sanity || return
	local socket=unix:///var/lib/kubelet/plugins/local.csi.moor.dev/csi.sock form access parameter iops
	for form in "mount kind=device 1000" "block kind=device 1000" "mount kind=directory 0"; do
		read -r access parameter iops <<<"$form"
		part "csi-sanity of the local driver, $access, $parameter" failures_of bin/moor-dev exec host-1 -- "$PWD/bin/sanity.test" "${SPECS[@]}" \
			-ginkgo.skip='what csi-sanity does not try' -access="$access" -parameter="$parameter" -iops="$iops" -controller="$socket" -node="$socket" || return
	done
}

# e2e_on_bed NAME FLAGS... runs the end-to-end tests on the bed that is up.
e2e_on_bed() {
	TAGS=e2e plain test -c -o bin/e2e.test ./test/e2e || return
	part "e2e, $1" failures_of in_directory test/e2e ../../bin/e2e.test "${SPECS[@]}" -ginkgo.v "${@:2}"
}

in_directory() { (cd "$1" && "${@:2}"); }

# conformance runs Kubernetes' own storage suite over the whole chain, and tells
# what passed, failed and was skipped, with each reason. DEFINITIONS, if set, are
# those to run, FOCUS a regular expression for the specs, PROCS how many of them run
# at a time.
conformance() {
	local code=0 definition bed="" wanted
	for definition in ${DEFINITIONS:-virtiofs xfs block nvme topology capacity local local-directory pods}; do
		case "$definition" in
		topology | capacity) wanted=conformance_bed_with_places ;;
		local | local-directory) wanted=conformance_bed_of_local ;;
		pods) wanted=conformance_bed_of_pods ;;
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

# conformance_bed_of_local has the driver of one machine.
conformance_bed_of_local() { up fast --local-driver && conformance_ready && plain run ./test/kit/apply host deploy/examples/local-driver.yaml; }

# conformance_bed_of_pods has pods as volumes, and a provisioner for the suite.
conformance_bed_of_pods() { up fast --pods && conformance_ready && plain run ./test/kit/apply host test/conformance/pods-provisioner.yaml; }

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
	local programs
	programs=$(kube_bin) || return
	part "conformance, $1" suite_with "$programs" "$@"
}

suite_with() {
	local code=0 programs=$1
	shift
	rm -f "bin/conformance-$1.json"
	bin/ginkgo --procs="${PROCS:-4}" --timeout=3h --no-color -v --output-dir=bin --json-report="conformance-$1.json" \
		--focus="\\[Driver:.*(${2:-})" --skip="$(bin/conformance skips "$1")" bin/conformance.test -- \
		-kubeconfig=/run/moor-dev/host.kubeconfig -kubectl-path="$programs/kubectl" -storage.testdriver="$PWD/test/conformance/$1.yaml" >"bin/conformance-$1.log" 2>&1 || code=1
	bin/conformance report "$1" "bin/conformance-$1.json" || code=1
	return $code
}

# part NAME COMMAND... is a part of a step whose time is told at the end.
part() {
	local name=$1 begin=$SECONDS code=0
	echo "--- $name"
	"${@:2}" || code=$?
	note "  $name" $code $begin
	return $code
}

# failures_of COMMAND... runs tests, or moor-dev, and keeps what gotestsum, ginkgo and moor-dev
# say at the end of what failed for the end of this script: much is said in between.
failures_of() {
	local code
	"$@" 2>&1 | tee "$notes/$lane/output"
	code=${PIPESTATUS[0]}
	[ "$code" = 0 ] || sed -n '/^=== Failed/,/^DONE /p; /^Summarizing .* Failure/,/^Ran /p; /^moor-dev: /,$p' "$notes/$lane/output" >>"$notes/$lane/failures"
	return "$code"
}

# note NAME CODE BEGIN leaves a line of this lane for the end of this script.
note() {
	local outcome=ok
	[ "$2" = 0 ] || outcome=FAILED
	printf '  %-7s %5d s  %s\n' $outcome $((SECONDS - $3)) "$1" >>"$notes/$lane/times"
}

# open_lane makes room for what the next lane leaves for the end of this script.
open_lane() {
	lane=$((lane + 1))
	mkdir "$notes/$lane"
}

# in_order STEPS runs steps with commas between them, to the first that fails.
in_order() {
	local code=0 step begin
	for step in ${1//,/ }; do
		echo "=== $step"
		begin=$SECONDS
		echo "$step $begin" >"$notes/$lane/step"
		"$step" || code=$?
		rm "$notes/$lane/step"
		note "$step" $code $begin
		[ $code = 0 ] || return $code
	done
}

# in_lanes LANES runs lanes with + between them at the same time. When one fails
# the others are ended.
in_lanes() {
	local code=0 steps beside=""
	for steps in ${1//+/ }; do
		open_lane
		if [ -z "$beside" ]; then start in_order "$steps"; else start in_order "$steps" >"$notes/$lane/log" 2>&1; fi
		beside=yes
	done
	while [ ${#groups[@]} -gt 0 ] && [ $code = 0 ]; do wait_any || code=$?; done
	end_groups
	show_logs
	return $code
}

# show_logs shows the output of lanes that has not been shown.
show_logs() {
	local log
	for log in "$notes"/*/log; do
		[ ! -e "$log" ] || { cat "$log" && rm "$log"; }
	done
}

# in_group runs a command in a process group of its own, so that what it leaves
# running can be ended. A signal to this script is seen at once, as it only waits.
in_group() {
	local code=0
	start "$@"
	wait_any || code=$?
	return $code
}

# start starts a command in a process group of its own.
start() {
	set -m
	"$@" </dev/null &
	groups+=($!)
	set +m
}

# wait_any waits for one of the commands that were started, ends what is left of its
# group, and returns what it returned.
wait_any() {
	local code=0 group
	wait -n -p group "${groups[@]}" || code=$?
	end_group "$group"
	return $code
}

# end_group ends what is left of a process group, with SIGKILL after ten seconds.
end_group() {
	local group=$1 other left=()
	for other in "${groups[@]}"; do [ "$other" = "$group" ] || left+=("$other"); done
	groups=("${left[@]}")
	kill -TERM -- "-$group" 2>/dev/null || return 0
	for _ in {1..100}; do
		kill -0 -- "-$group" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -KILL -- "-$group" 2>/dev/null
}

end_groups() {
	local group
	for group in "${groups[@]}"; do end_group "$group"; done
}

# end_strays ends what was started by a step and has left its process group: tests
# start their API servers in groups of their own. All have the mark of this run in
# their environment, but for this script's shells, which had none when they began.
# It returns when they are gone, as a killed process still has its ports for a moment.
end_strays() {
	local marked environ pid
	for _ in {1..100}; do
		# What looks must not have the mark itself.
		marked=$(env -u MOOR_STEPS grep -lsz "^MOOR_STEPS=$notes\$" /proc/[0-9]*/environ) || true
		[ -n "$marked" ] || return 0
		for environ in $marked; do
			pid=${environ#/proc/}
			kill -KILL "${pid%/environ}" 2>/dev/null
		done
		sleep 0.1
	done
}

# take_down takes the bed down if one of the steps brought one up, after showing
# what its processes said last, if a step failed.
take_down() {
	[ -e "$notes/bed" ] && [ -x bin/moor-dev ] || return 0
	local log
	if [ "$1" != 0 ]; then
		for log in /run/moor-dev/logs/*.log; do
			[ -e "$log" ] && echo "--- the end of $log" && tail -n 15 "$log" | cut -c1-400
		done
	fi
	in_group bin/moor-dev down && in_group bin/moor-dev leftovers
}

# note_interrupted leaves a line for each step that was at work when it was ended.
note_interrupted() {
	local file step begin
	for file in "$notes"/*/step; do
		[ -e "$file" ] || continue
		read -r step begin <"$file"
		lane=$(basename "$(dirname "$file")") note "$step, interrupted" 1 "$begin"
	done
}

# ended is the end of this script, whatever ends it.
ended() {
	local code=$1 begin=$SECONDS
	trap '' HUP INT TERM
	trap - EXIT
	end_groups
	show_logs
	note_interrupted
	open_lane
	take_down "$code" || { code=1 && note "taking the test bed down" 1 $begin; }
	end_strays
	of_lanes failures | sed '1s/^/\n--- what failed\n/'
	printf '\n' && of_lanes times
	rm -rf "$notes"
	[ "$code" = 0 ] && echo "all steps passed"
	exit "$code"
}

# of_lanes NAME is what the lanes left under a name, in their order.
of_lanes() {
	local of
	for of in $(seq "$lane"); do [ ! -e "$notes/$of/$1" ] || cat "$notes/$of/$1"; done
}

# run_all is a function so that bash has read the whole file before it begins:
# a checkout that changes meanwhile must not change what runs.
run_all() {
	local code=0 lanes
	notes=$(mktemp -d) lane=0 groups=()
	export MOOR_STEPS=$notes
	trap 'ended $?' EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	for lanes in "$@"; do
		in_lanes "$lanes" || code=$?
		[ $code = 0 ] || break
	done
	exit $code
}

run_all "$@"
