#!/bin/bash
# Checks docs/model/claim.pml and lease.pml: that the protocol holds, that dropping
# each check is caught, and what docs/model/README.md says of the holes.
# Needs spin and a C compiler. --long: also the searches that take long, or are not whole.
set -eu
models=$(cd "$(dirname "$0")/../docs/model" && pwd)
model=$models/claim.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
depth=100000
memory=8000
long=
[ "${1:-}" != --long ] || long=yes

run() { # run EXPECTED WORDS DEFINES...; EXPECTED is "holds" or "caught"
	local expected=$1 words=$2 got errors states start=$SECONDS
	shift 2
	(
		cd "$work"
		spin -a "$@" "$model" >spin.log || { cat spin.log; exit 1; }
		if [[ " $* " == *" -DLIVE "* ]]; then
			cc -O2 -w -DNFAIR=4 -DMEMLIM=4000 -DVECTORSZ=512 -o pan pan.c
			./pan -a -f -n -m100000 >pan.log 2>&1
		else
			cc -O2 -w -DSAFETY -DMEMLIM=$memory -DVECTORSZ=512 -o pan pan.c
			./pan -E -n -m$depth >pan.log 2>&1
		fi
	)
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$work/pan.log")
	states=$(sed -n 's/ *\([^ ]*\) states, stored.*/\1/p' "$work/pan.log")
	got=unfinished
	if grep -qE 'assertion violated|acceptance cycle' "$work/pan.log"; then
		got=caught
	elif [ "$errors" = 0 ] && ! grep -qE 'not completed|max search depth|out of memory' "$work/pan.log"; then
		got=holds
	fi
	printf '%-60s %-10s %12s %4ss\n' "$words" "$got" "$states" "$((SECONDS - start))"
	[ "$got" = "$expected" ] || { echo "model: expected: $expected" >&2; failed=1; }
}

# sampled WORDS DEFINES...: a search that is not whole: it keeps three bits of each state, so
# that some are taken for others, and ends after ten minutes.
sampled() {
	local words=$1 got="not whole" states start=$SECONDS
	shift
	(
		cd "$work"
		spin -a "$@" "$model" >spin.log || { cat spin.log; exit 1; }
		cc -O2 -w -DSAFETY -DBITSTATE -DMEMLIM=4000 -DVECTORSZ=512 -o pan pan.c
		./pan -E -n -w33 -k3 -Q10 -m1000000 >pan.log 2>&1 || true
	)
	states=$(sed -n 's/ *\([^ ]*\) states, stored.*/\1/p' "$work/pan.log")
	if grep -q 'assertion violated' "$work/pan.log"; then
		got=caught failed=1
		echo "model: a violation was found" >&2
	fi
	printf '%-60s %-10s %12s %4ss\n' "$words" "$got" "$states" "$((SECONDS - start))"
}

dpu="-DREVOKES=0 -DEPOCHS=3 -DMADE=2"
storage="-DREVOKES=1 -DEPOCHS=2 -DMADE=1"
again="-DREVOKES=1 -DEPOCHS=2 -DMADE=2"
late="-DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DLATE"
lose="-DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DLOSE"
vouch="-DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DVOUCH"
fenced="-DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DMEDIUM"
medium="-DREVOKES=0 -DEPOCHS=2 -DMADE=1 -DMEDIUM -DLATE -DUNDRAINED"
strip="-DSTRIP -DMADE_ANYWAY"
live="-DLIVE -DREVOKES=0 -DEPOCHS=2 -DMADE=1 -DSTALE"
printf '%-60s %-10s %12s %5s\n' WHAT RESULT STATES TIME
run holds "the protocol, receipt A" $dpu -DMADE1=2
run holds "receipts A and B, attached anew; force takes finalizers off" $again $strip -DNEVER_LEFT
run holds "receipts A and B, attached anew" $again
run holds "progress: DPU 0 loses the claim, DPU 1 gets and shows it" $live
run holds "receipt A, and a person takes the finalizers off once" -DREVOKES=0 -DEPOCHS=2 -DMADE=2 $strip
run holds "receipt A, and SNAP dies with requests on their way" $late
run holds "receipt A, and the claim is deleted by force once" $lose
run holds "receipt A, force takes finalizers off, and the claim" $lose $strip
run holds "receipt A, and a person pulls a DPU and vouches for it" $vouch
run holds "the same, and takes the finalizers off once" $vouch $strip
run holds "the storage knows epochs: no drain, and SNAP in any order" $medium -DSNAP_REORDERS
echo "--- a check is dropped"
run caught "an attachment is known by its name, and was made anew" -DREVOKES=0 -DEPOCHS=2 -DMADE=2 $strip -DBY_NAME
run caught "the DPU trusts its cache, nothing is read live" $dpu -DNO_LIVE_READ
run caught "epochs are not compared" $dpu -DNO_EPOCH
run caught "a claim is freed without a receipt" $dpu -DNO_RECEIPT
run caught "the DPU holds an attachment, and its epoch is not retired" $dpu -DRETIRED_ANY
run caught "the receipt is written before the device is withdrawn" $dpu -DRECEIPT_FIRST
run caught "the claim is granted without compare-and-swap" $dpu -DNO_CAS
run caught "receipt B though the storage does not revoke" $storage -DUNREVOKED
run caught "receipt B though snap-controller may ask again" $storage -DNOT_NOTICED
run caught "the epoch is retired while requests are on their way" $late -DUNDRAINED
run caught "a claim that is made anew is free" $lose -DNOT_REMEMBERED
run caught "the host cluster does not remember the last grant" $lose $strip -DUNMARKED
run caught "a DPU clears up what was lost by its word alone" $lose -DCLEARED_UNSEEN
run caught "the storage is reopened before the DPU has cleared up" $again -DREOPENED_EARLY
run caught "the DPU says that it has cleared up, and has not" $again -DCLEARED_BY_WORD
run caught "the DPU is put back while the operator's word counts" $vouch -DWORD_KEPT
run caught "another is made, and let in, while the claim is held" $again $strip -DNEVER_LEFT -DASKED_FOR_ANOTHER
run caught "the grant is usable before the storage has fenced" $medium -DUNFENCED_GRANT
run caught "neither the grant nor the receipt waits for the fence" $fenced -DUNFENCED_GRANT -DUNFENCED_RECEIPT
run caught "a pass that took nothing away lets the attachment go" $dpu -DLETS_GO_UNTOUCHED
run caught "what is said to be shown is let go, and not made good" $live -DLETS_GO_ATTACHED -DNOT_CORRECTED
echo "--- a check that another one covers"
run holds "a silent DPU lets go all that no claim is held for" $dpu -DNEVER_UNCLAIMED
run holds "the attachment is read live, the claim is not" $dpu -DNO_LIVE_CLAIM
run holds "the grant is usable before the fence, and all is drained" $fenced -DUNFENCED_GRANT
run holds "what is said to be shown is let go, and made good later" $live -DLETS_GO_ATTACHED
if [ "$long" ]; then
	run holds "another is let in, and none is made while the claim is held" $again -DSTRIP -DASKED_FOR_ANOTHER
	run holds "the receipt does not wait for the fence, the grant does" $medium -DUNFENCED_RECEIPT
fi
echo "--- fail closed: no receipt, no progress"
run caught "DPU 0 never answers, and the storage does not revoke" $live -DSILENT
echo "--- holes: the model without what README.md assumes"
run caught "SNAP executes calls out of order" $dpu -DSNAP_REORDERS
run caught "any words of snap-controller count as noticed" $storage -DNOTICED_BY_WORDS
run caught "two leaders; fence reads the claim last" $dpu -DLEADERS -DCLAIM_READ_LAST
if [ "$long" ]; then
	echo "--- not whole: a violation would be one, that there is none says little"
	sampled "receipts A and B, and the claim is deleted by force once" -DREVOKES=1 -DEPOCHS=2 -DMADE=2 -DLOSE
fi
echo "--- the lease bound (lease.pml)"
model=$models/lease.pml depth=2000000
run holds "no write after the bound, whatever stands still"
run caught "the bound is reached at all" -DREACHED
echo "--- a check is dropped"
run caught "there is no watchdog, and the driver stands still" -DNO_WATCHDOG
run caught "the bound is that of the lease alone" "-DGRACE=S"
run caught "the grace is one timeout of the watchdog" "-DGRACE=W+S"
run caught "the grace is two timeouts of the watchdog" "-DGRACE=2*W+S"
run caught "what the storage has received does not count" "-DGRACE=3*W"
run caught "the watchdog is fed whatever the lease is" -DSLOPPY_FEED
run caught "a driver that starts opens, and so feeds, the watchdog at once" -DOPENED_EARLY
run caught "a driver that ends stops the watchdog while it shows something" -DDISARMED
run caught "the lease counts from the answer, not from the begin" -DCOUNTED_FROM_ANSWER
run caught "a call to show that is under way does not count as shown" -DCLEAR_IN_HASTE
run caught "a beat that is late is accepted after a newer one" -DNOT_EXACT
run caught "the claim is read before the lease was renewed" -DCLAIM_FIRST
run caught "a right of before the end of a lease counts after it" -DNO_TERM
run caught "the wait counts from the first renewal that was seen" -DRENEWALS_IGNORED
run caught "the claim is fenced after the DPU's object was read" -DFENCED_LAST
run caught "the fence trusts its cache, nothing is read live" -DCACHE_TRUSTED
echo "--- a check that another one covers"
run holds "a lease that ended begins again though something is shown" -DRENEWED_UNCLEARED
exit $failed
