#!/bin/bash
# Checks docs/model/claim.pml and lease.pml: that the protocol holds, that dropping
# each check is caught, and what docs/model/README.md says of the holes.
# Needs spin and a C compiler.
set -eu
models=$(cd "$(dirname "$0")/../docs/model" && pwd)
model=$models/claim.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
depth=100000

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
			cc -O2 -w -DSAFETY -DMEMLIM=4000 -DVECTORSZ=512 -o pan pan.c
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

dpu="-DREVOKES=0 -DEPOCHS=3 -DMADE=2"
storage="-DREVOKES=1 -DEPOCHS=2 -DMADE=1"
again="-DREVOKES=1 -DEPOCHS=2 -DMADE=2"
late="-DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DLATE"
lose="-DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DLOSE"
vouch="-DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DVOUCH"
live="-DLIVE -DREVOKES=0 -DEPOCHS=2 -DMADE=1"
printf '%-60s %-10s %12s %5s\n' WHAT RESULT STATES TIME
run holds "the protocol, receipt A" $dpu -DMADE1=2
run holds "the protocol, receipts A and B, attached anew afterwards" $again
run holds "progress: DPU 0 loses the claim, DPU 1 gets and shows it" $live
run holds "receipt A, and a person takes the finalizers off once" -DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DSTRIP
run holds "receipt A, and SNAP dies with requests on their way" $late
run holds "receipt A, and the claim is deleted by force once" $lose
run holds "receipt A, force takes finalizers off, and the claim" $lose -DSTRIP
run holds "receipt A, and a person pulls a DPU and vouches for it" $vouch
run holds "the same, and takes the finalizers off once" $vouch -DSTRIP
echo "--- a check is dropped"
run caught "an attachment is known by its name, and was made anew" -DREVOKES=0 -DEPOCHS=2 -DMADE=2 -DSTRIP -DBY_NAME
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
run caught "the host cluster does not remember the last grant" $lose -DSTRIP -DUNMARKED
run caught "a DPU clears up what was lost by its word alone" $lose -DCLEARED_UNSEEN
run caught "the storage is reopened before the DPU has cleared up" $again -DREOPENED_EARLY
run caught "the DPU says that it has cleared up, and has not" $again -DCLEARED_BY_WORD
run caught "the DPU is put back while the operator's word counts" $vouch -DWORD_KEPT
echo "--- a check that another one covers"
run holds "the attachment is read live, the claim is not" $dpu -DNO_LIVE_CLAIM
echo "--- fail closed: no receipt, no progress"
run caught "DPU 0 never answers, and the storage does not revoke" $live -DSILENT
echo "--- holes: the model without what README.md assumes"
run caught "SNAP executes calls out of order" $dpu -DSNAP_REORDERS
run caught "any words of snap-controller count as noticed" $storage -DNOTICED_BY_WORDS
run caught "two leaders; fence reads the claim last" $dpu -DLEADERS -DCLAIM_READ_LAST
run caught "finalizers are taken off while receipt B is written" $again -DSTRIP
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
