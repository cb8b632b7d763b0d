/*
 * The right to write one volume: two DPUs, each with a host that writes, one
 * WriterClaim. README.md says what is modelled and how to run it.
 *
 * Each atomic block is one request, to the API server, SNAP or the vendor.
 * Between two of them anything else may happen, for any length of time: that is
 * a pause, a late message and a stale cache. FAIL is a crash, a lost request
 * or an error at that point: what the process knew is forgotten. A lost answer
 * is a crash just after the request.
 */
#ifndef EPOCHS
#define EPOCHS 3	/* grants in all */
#endif
#ifndef MADE
#define MADE 2		/* how often VolumeAttachment 0 is made */
#endif
#ifndef MADE1
#define MADE1 1		/* how often VolumeAttachment 1 is made */
#endif
#ifdef LIVE
#define FAIL :: atomic { false -> goto idle }
#else
#define FAIL :: goto idle
#endif

#ifdef LIVE
#define LIVEFIRST && (d == 1 || epoch == 0) && (d == 0 || epoch > 0)
#define LIVEFENCE && holder == 0
#else
#define LIVEFIRST
#define LIVEFENCE
#endif

#define FREE 0
#define GRANTED 1
#define FENCING 2
#define LOST 3
#define NONE 2
#define WILL (d == 0 -> va[d].uid < MADE : va[d].uid < MADE1)

/* The WriterClaim. Phase and epoch together never return to what they were, so
   to compare them is to compare the resourceVersion. */
byte phase, epoch, holder = NONE;
#ifdef STRIP
/* The attachment that it was granted to, and not another of its name. */
byte object;
bit stripped;
#endif
/* The highest epoch of each DPU that the storage's receipt ended, or that it has
   retired and did not let go of: it has to clear up. */
byte revokedEpoch[2];

#ifdef LOSE
/* The claim was deleted by force and made anew. 'made' tells the two apart, as UID and
   resourceVersion do. */
bit made;
/* Of whom it is not proven yet that they cannot write, by the uid of the attachment; what
   each DPU has cleared up; and the epoch up to which nothing is known of revocations. */
byte waits[2], cleared[2], lostEpoch;
#define SEEN(n) (va[n].epoch > va[n].retired -> va[n].epoch : va[n].retired)
#define SHOWN (SEEN(0) > SEEN(1) -> SEEN(0) : SEEN(1))
#ifdef UNMARKED
#define KNOWN SHOWN
#else
/* What the host cluster remembers of the last grant, and which nothing takes away: epoch,
   DPU, uid of the attachment, and that there was a receipt. */
byte mark, markD = NONE, markU;
bit markOver;
#define KNOWN (SHOWN > mark -> SHOWN : mark)
/* Its attachment is there, and says for itself. */
#define SPEAKS(n) (va[n].here && va[n].uid == markU && SEEN(n) >= mark)
#define MARKS(n) (markD == n && !markOver && !SPEAKS(n))
#endif
#ifdef NOT_REMEMBERED
#define BEHIND false
#else
#define BEHIND (KNOWN > epoch)
#endif
#define WRITABLE(n) (va[n].here && (va[n].attached || va[n].epoch > va[n].retired))
#define WAITS(n) (phase == LOST && va[n].here && waits[n] == va[n].uid)
/* A claim that has lost all may count from one again. So grants are counted beside it:
   in all, by DPU of what was sent and is shown, and of the last write. */
byte grants, sentOf[2], shownOf[2], lastWrite;
#define UNCHANGED (made == was)
#define READ was = made
#define COUNT grants++
#define NOTE grantOf = grants
#define UNNOTE grantOf = 0
#define SEND sentOf[d] = grantOf; grantOf = 0
#define SHOW shownOf[d] = sentOf[d]; sentOf[d] = 0
#define HIDE shown[d] = 0; shownOf[d] = 0
#define UNSEND sent[d] = 0; sentOf[d] = 0
#define UNWRITTEN (shownOf[d] != lastWrite)
#define FORGET was = 0
#else
#define BEHIND false
#define WAITS(n) false
#define UNCHANGED true
#define READ skip
#define COUNT skip
#define NOTE skip
#define UNNOTE skip
#define SEND skip
#define SHOW skip
#define HIDE shown[d] = 0
#define UNSEND sent[d] = 0
#define UNWRITTEN (shown[d] != accepted)
#define FORGET skip
#endif

/* VolumeAttachments in the API server; 'uid' tells one from the next of its name. */
typedef Attachment {
	bit here, deleting;
	byte uid, epoch, retired;
	bit dpuFin, claimFin, storageFin;
	bit attached, noticed, words
}
Attachment va[2];
/* The SVVolumeAttachment is there, and with it the storage lets the DPU in. That
   the attacher is slow is no different from being asked later. */
bit svva[2];
/* The vendor vouches that ControllerUnpublish revokes. */
bit revokes;

/* SAME(n): the attachment is the one that the claim was granted to. Without STRIP an
   attachment never goes while it holds the claim, so its name is enough. */
#ifdef STRIP
#ifdef BY_NAME
#define SAME(n) true
#else
#define SAME(n) (object == va[n].uid)
#endif
#else
#define SAME(n) true
#endif

/* SNAP: the epoch that is shown (0: nothing), and the call that it was sent. */
byte shown[2], sent[2];
/* A pass of the DPU may still send a call. */
bit busy[2];
/* The highest epoch of which the medium has accepted a write. */
byte accepted;
/* What a SNAP that died had sent, under this epoch, and the storage has not executed. */
byte late[2];
#ifdef UNDRAINED
#define DRAINED(d) true
#else
/* --lease-drain has passed since */
#define DRAINED(d) (late[d] == 0)
#endif

#ifdef VOUCH
/* Once, a person pulls the DPU that the claim is held for: nothing of it is shown, or on
   its way, until it is put back. Meanwhile its epoch is vouched for. */
bit vouched, pulled[2];
byte wordD = NONE, wordEpoch, boots[2];
#define POWERED (!pulled[d] && boot == boots[d])
#define BOOT boot = boots[d]
#define WORD (wordD == holder && wordEpoch == epoch && (phase == FENCING || (phase == GRANTED && !(va[holder].here && SAME(holder)))))
#else
#define POWERED true
#define BOOT skip
#endif

#ifdef MEDIUM
/* The storage knows epochs: it accepts nothing below this one, and answers that only when what
   was on its way is done or refused. The word of it (status.fence) comes later, which allows less. */
byte fencedBelow;
#define TAKES(e) (e >= fencedBelow)
#else
#define TAKES(e) true
#endif
#if defined(MEDIUM) && !defined(UNFENCED_GRANT)
#define USABLE (fencedBelow >= e)
#else
#define USABLE true
#endif

#ifdef UNREVOKED
#define ADMITTED(d) true
#else
#define ADMITTED(d) (!revokes || svva[d])
#endif
#define LETIN(d) (ADMITTED(d) && TAKES(shown[d]))

/* SW, second half. With receipt B a DPU that cannot be reached goes on showing; the
   storage lets it in no more. */
inline onlyOne() {
	assert(!(shown[0] && shown[1] && LETIN(0) && LETIN(1)))
}

/* Finalizers hold an object that is being deleted; it goes with the last. */
inline settle(n) {
	if
	:: va[n].here && va[n].deleting && !va[n].dpuFin && !va[n].claimFin && !va[n].storageFin ->
		va[n].here = 0; va[n].deleting = 0; va[n].epoch = 0; va[n].retired = 0;
		va[n].attached = 0; va[n].noticed = 0; va[n].words = 0;
#ifdef LOSE
		cleared[n] = 0
#endif
	:: else
	fi
}

/* SNAP executes calls in the order in which it got them, and detaches only when
   no write is under way any more. */
#ifdef SNAP_REORDERS
#define HIDEABLE true
#else
#define HIDEABLE (sent[d] == 0)
#endif

/* ---- SNAP and the medium, which outlive Moor's processes ---- */

inline accept(n) {
#ifdef LOSE
	assert(shownOf[n] >= lastWrite);	/* SW */
	lastWrite = shownOf[n]
#else
	assert(shown[n] >= accepted);	/* SW */
	accepted = shown[n]
#endif
}

proctype snap(bit d) {
end:	do
	:: atomic { sent[d] != 0 -> shown[d] = sent[d]; sent[d] = 0; SHOW; onlyOne() }
	/* the host writes, and the storage lets it in */
	:: atomic { shown[d] != 0 && UNWRITTEN && LETIN(d) -> accept(d) }
#ifndef LIVE
	/* SNAP or the whole DPU restarts */
	:: atomic { shown[d] != 0 || sent[d] != 0 ->
#ifdef LATE
		if :: late[d] == 0 -> late[d] = shown[d] :: else fi;
#endif
		HIDE; UNSEND }
#endif
#ifdef LATE
	:: atomic { late[d] != 0 && ADMITTED(d) && TAKES(late[d]) -> assert(late[d] >= accepted); accepted = late[d] }	/* SW */
	:: atomic { late[d] != 0 -> late[d] = 0 }
#endif
	od
}

/* ---- pkg/node/dpu: one pass after another, from a cache ---- */

/* What the claim says to this DPU, see Refusal() in pkg/writer/expose.go. */
#ifdef NO_EPOCH
#define MINE (phase == GRANTED && holder == d)
#define OPEN (va[d].epoch != 0)
#else
#define OPEN (va[d].epoch > va[d].retired)
#define MINE (phase == GRANTED && holder == d && epoch == e && SAME(d))
#endif

#define MAYHIDE !(phase == GRANTED && holder == d && epoch == va[d].epoch && !va[d].deleting && shown[d] == epoch)
#define RETIRES (ANSWERS && phase == FENCING && holder == d && va[d].here && SAME(d) && (va[d].retired < epoch || va[d].attached))
#ifdef SILENT
#define ANSWERS (d == 1)	/* DPU 0 does nothing that would be a receipt */
#elif defined(NOT_CORRECTED)
#define ANSWERS (va[d].dpuFin || !va[d].deleting)
#else
#define ANSWERS true
#endif
#if defined(LOSE) && !defined(REVOKED_FORGOTTEN)
#define UNCLEARED(d) (revokedEpoch[d] > lostEpoch -> revokedEpoch[d] : lostEpoch)
#else
#define UNCLEARED(d) revokedEpoch[d]
#endif
#define LEFT (va[d].here && !va[d].deleting && va[d].retired < UNCLEARED(d))
#define GOES (ANSWERS && va[d].here && va[d].deleting && va[d].dpuFin)

/* What lets an attachment go, and what is made good without the finalizer. */
#ifdef LETS_GO_ATTACHED
#define UNATTACHED true
#else
#define UNATTACHED !va[d].attached
#endif
#ifdef LETS_GO_UNTOUCHED
#define UNTOUCHED true
#else
#define UNTOUCHED (shown[d] == 0 && HIDEABLE)
#endif
#ifdef NOT_CORRECTED
#define CORRECTED && ANSWERS
#else
#define CORRECTED
#endif
#ifdef STALE
bit stale;
#define STALEONCE && !stale
#define SETSTALE stale = 1
#else
#define STALEONCE
#define SETSTALE skip
#endif

/*
 * A pass is led by a cache, which may be behind by any length. It decides only
 * what is tried: what matters is read live. So any pass may begin at any time
 * here, which is more than any cache could do. The same holds for what a merge
 * patch leaves out because the cache has it already.
 */
proctype dpu(bit d) {
	byte e;
#ifdef LOSE
	byte grantOf;
#endif
#ifdef NO_LIVE_READ
	byte seen;	/* an epoch in the cache */
#endif
#ifdef VOUCH
	byte boot;
#endif
end:
idle:
	atomic { busy[d] = 0; e = 0; UNNOTE; BOOT };
	do
	/* protect: before the first effect, and never on what is being deleted */
	:: atomic { va[d].here && !va[d].deleting && !va[d].dpuFin -> va[d].dpuFin = 1 }
#ifdef NO_LIVE_READ
	:: atomic { seen != va[d].epoch -> seen = va[d].epoch }
	:: atomic { seen != 0 && shown[d] != seen -> e = seen; busy[d] = 1; break }
#else
	/* confirm: the attachment is read live ... */
	:: atomic { va[d].here && !va[d].deleting && va[d].dpuFin && OPEN && (shown[d] != va[d].epoch || !va[d].attached) ->
		e = va[d].epoch; busy[d] = 1; break }
#endif
	/* giveUp, sweep: hidden; and that is noted, or the process dies before */
	:: atomic { shown[d] != 0 && MAYHIDE && HIDEABLE -> HIDE }
	:: atomic { va[d].attached && MAYHIDE && HIDEABLE CORRECTED -> HIDE; va[d].attached = 0 }
#ifdef RECEIPT_FIRST
	:: atomic { RETIRES -> va[d].attached = 0; va[d].retired = epoch }
#else
	/* retire: withdrawn, then said; died in between is giveUp. Receipt A. */
	:: atomic { RETIRES && HIDEABLE && DRAINED(d) -> HIDE; va[d].attached = 0; va[d].retired = epoch }
#ifndef LIVE
	/* a cache that is behind leaves 'attached' out of the merge patch */
	:: atomic { RETIRES && HIDEABLE && DRAINED(d) -> HIDE; va[d].retired = epoch }
#endif
#endif
	/* clearUp: what is left of an attachment that was let go, then said */
#ifdef CLEARED_BY_WORD
	:: atomic { LEFT -> va[d].attached = 0; va[d].retired = UNCLEARED(d) }
#else
	:: atomic { LEFT && HIDEABLE && DRAINED(d) -> HIDE; va[d].attached = 0; va[d].retired = UNCLEARED(d) }
#endif
#ifdef LOSE
	/* clearAll, for a claim that was lost */
#ifdef CLEARED_UNSEEN
	:: atomic { WAITS(d) && ANSWERS -> cleared[d] = KNOWN }
#else
	:: atomic { WAITS(d) && ANSWERS && HIDEABLE && DRAINED(d) -> HIDE; va[d].attached = 0; cleared[d] = epoch;
		va[d].retired = (epoch > va[d].retired -> epoch : va[d].retired) }
#endif
#endif
	/* detach: withdrawn, noted, let go */
	:: atomic { GOES && HIDEABLE && DRAINED(d) && (shown[d] != 0 || va[d].attached || va[d].retired < va[d].epoch) -> HIDE; va[d].attached = 0; va[d].retired = (va[d].epoch > va[d].retired -> va[d].epoch : va[d].retired) }
#if !defined(LIVE) || defined(STALE)
	/* a cache that is behind leaves 'attached' out of the merge patch; once, if caches catch up */
	:: atomic { GOES && HIDEABLE && DRAINED(d) && va[d].attached STALEONCE -> HIDE; SETSTALE; va[d].retired = (va[d].epoch > va[d].retired -> va[d].epoch : va[d].retired) }
#endif
#ifdef STRIP
	/* one that was made anew has no device on record */
	:: atomic { GOES && va[d].uid != object && !va[d].attached && DRAINED(d) -> va[d].dpuFin = 0; settle(d) }
#endif
	/* the API server's answer says that nothing is shown, and the pass has taken away what was */
	:: atomic { GOES && UNATTACHED && UNTOUCHED && DRAINED(d) && !WAITS(d) -> va[d].dpuFin = 0; settle(d) }
	od;
#if !defined(NO_LIVE_CLAIM) && !defined(NO_LIVE_READ)
	if	/* ... and then the claim, last */
	:: atomic { MINE && USABLE -> NOTE }
	:: atomic { !(MINE && USABLE) -> goto idle }
	fi;
#endif
	if	/* a pause: anything may have happened since the claim was read */
	:: atomic { sent[d] == 0 && POWERED -> sent[d] = e; SEND }
	FAIL
	fi;
	if	/* SNAP answers; or the call is broken off, and executed all the same */
	:: atomic { sent[d] == 0 && POWERED -> va[d].attached = va[d].here; goto idle }
	FAIL
	fi
}

/* ---- pkg/controller/hostcluster/attachment: grant.go; pkg/writer: grant.go, claim.go ---- */

#if defined(STRIP) && !defined(MADE_ANYWAY)
#define GUARDED
#endif
#define MAKE va[d].uid++; va[d].here = 1; va[d].claimFin = 1

proctype hostcluster(bit d) {
	byte ep;
#ifdef LOSE
	bit was;
#endif
#ifdef STRIP
	byte uid;
#endif
end:
idle:
	atomic { ep = 0; FORGET };
	do
	/* A mirror may come before the claim is free: it is a replica's then. */
#ifdef GUARDED
	/* mayMake: the claim is read, and it is not held for one of the name that is gone ... */
	:: atomic { !va[d].here && WILL && !(phase != FREE && holder == d) -> goto make }
#else
	:: atomic { !va[d].here && WILL -> MAKE }
#endif
	/* The user, or a failover, lets go. */
#ifdef LIVE
	:: atomic { va[d].here && !va[d].deleting && d == 0 && phase != FREE -> va[d].deleting = 1; settle(d) }
#else
	:: atomic { va[d].here && !va[d].deleting -> va[d].deleting = 1; settle(d) }
#endif
#ifdef STRIP
	/* A person takes all finalizers off, once. */
	:: atomic { d == 0 && !stripped && va[d].here && va[d].deleting ->
		stripped = 1; va[d].dpuFin = 0; va[d].claimFin = 0; va[d].storageFin = 0; settle(d) }
#endif
#ifdef LOSE
	/* Once, the claim is deleted by force, and made anew. */
	:: atomic { d == 0 && !made && epoch != 0 -> made = 1; phase = FREE; holder = NONE; epoch = 0; revokedEpoch[0] = 0; revokedEpoch[1] = 0 }
#ifndef NOT_REMEMBERED
	/* remember: it knows less than the attachments */
	:: atomic { BEHIND && (phase == FREE || phase == GRANTED) -> epoch = KNOWN; lostEpoch = KNOWN; holder = NONE;
		waits[0] = (WRITABLE(0) -> va[0].uid : 0); waits[1] = (WRITABLE(1) -> va[1].uid : 0);
#ifndef UNMARKED
		/* Remembered */
		if :: MARKS(0) && waits[0] == 0 -> waits[0] = markU :: MARKS(1) && waits[1] == 0 -> waits[1] = markU :: else fi;
#endif
		phase = (waits[0] != 0 || waits[1] != 0 -> LOST : FREE) }
	/* recoverClaim */
	:: atomic { WAITS(d) && !va[d].attached && cleared[d] >= epoch ->
		waits[d] = 0; phase = (waits[0] != 0 || waits[1] != 0 -> LOST : FREE) }
#ifndef UNMARKED
	/* Adopt: the DPU is asked by another attachment of the name */
	:: atomic { phase == LOST && waits[d] != 0 && va[d].here && !va[d].deleting && waits[d] != va[d].uid -> waits[d] = va[d].uid }
	/* endMark, of a volume that is attached nowhere */
	:: atomic { d == 0 && phase == FREE && mark != 0 && epoch == mark && !markOver && !va[0].here && !va[1].here -> markOver = 1 }
#endif
#endif
#endif
	/* Judge, confirm: the claim is read, then the attachment */
	:: atomic { !BEHIND && va[d].here && !va[d].deleting && phase == FREE && epoch < EPOCHS LIVEFIRST -> ep = epoch; READ;
#ifdef STRIP
		uid = va[d].uid;
#endif
		break }
	/* granted, and the epoch not written yet */
	:: atomic { !BEHIND && va[d].here && !va[d].deleting && phase == GRANTED && holder == d && SAME(d) && va[d].epoch != epoch -> ep = epoch; goto promote }
	od;
	if	/* compare and swap */
#ifdef NO_CAS
	:: atomic { phase = GRANTED; holder = d; epoch = ep + 1; goto idle }
#else
	:: atomic { UNCHANGED && phase == FREE && epoch == ep -> phase = GRANTED; holder = d; epoch = ep + 1; COUNT;
#ifdef STRIP
		object = uid; uid = 0;
#endif
		goto idle }
	:: atomic { !(UNCHANGED && phase == FREE && epoch == ep) -> goto idle }
#endif
	FAIL
	fi;
promote:
#if defined(LOSE) && !defined(UNMARKED)
	if	/* mark: the API server refuses one that goes back, and another of the same epoch */
	:: atomic { ep > mark -> mark = ep; markD = d; markU = va[d].uid; markOver = 0 }
	:: atomic { ep == mark && markD == d && markU == va[d].uid -> skip }
	:: atomic { !(ep > mark || (ep == mark && markD == d && markU == va[d].uid)) -> goto idle }
	FAIL
	fi;
#endif
	if	/* a merge patch, by name */
	:: atomic { if :: va[d].here -> va[d].epoch = ep :: else fi; goto idle }
	FAIL
	fi;
#ifdef GUARDED
make:	/* ... and then it is made */
	if
	:: atomic { MAKE; goto idle }
	FAIL
	fi
#endif
}

/* ---- pkg/controller/failover/detach; pkg/writer: detach.go, claim.go ---- */

/* The node driver has let go; or, while the vendor's plugin keeps it from that,
   it has retired every epoch that the attachment ever had. */
#define RELEASED(n) (va[n].here && va[n].deleting && !va[n].attached && (!va[n].dpuFin || RETIRED(n)))
#ifdef RETIRED_ANY
#define RETIRED(n) (va[n].epoch > 0)
#else
#define RETIRED(n) ((va[n].epoch > 0 || HELDBY(n)) && va[n].retired >= va[n].epoch && (!HELDBY(n) || va[n].retired >= epoch))
#endif

/* What snap-controller has noticed; the fence takes any words of it for that. */
#ifdef NOT_NOTICED
#define NOTICED(n) true
#else
#ifdef NOTICED_BY_WORDS
#define NOTICED(n) (va[n].noticed || va[n].words)
#else
#define NOTICED(n) va[n].noticed
#endif
#endif
/* The DPU has retired its epoch, and did not let go. */
#define OVER(n) (va[n].deleting && va[n].epoch > 0 && !va[n].attached && va[n].retired >= va[n].epoch && va[n].dpuFin && !va[n].claimFin)
#define MAYLETGO(n) (va[n].here && va[n].deleting && (va[n].claimFin || OVER(n)) && !HELDBY(n) && \
	revokedEpoch[n] != 0 && revokedEpoch[n] >= va[n].epoch)
/* It goes, and was never granted anything: a replica, or one that waited in vain. */
#ifdef NEVER_LEFT
#define NEVER(n) false
#else
#ifdef NEVER_UNCLAIMED
#define NEVER(n) (va[n].deleting && va[n].claimFin && !va[n].attached)
#else
#define NEVER(n) (va[n].deleting && va[n].claimFin && va[n].epoch == 0 && !va[n].attached && !HELDBY(n) && !WAITS(n))
#endif
#endif
#define DISOWNED(n) (NEVER(n) -> epoch : va[n].epoch)
#define MAYDISOWN(n) (va[n].here && (OVER(n) || NEVER(n)) && va[n].epoch <= epoch && !(phase != FREE && holder == n))

/* What is read in one step here is read claim first. As the claim is compared
   when it is written, it was the same while the attachment was read. */
#define HELDBY(n) (phase != FREE && holder == n && SAME(n))
#define CANGO(n) (va[n].here && va[n].deleting && va[n].claimFin)
#ifdef NO_RECEIPT
#define PROOF(n) true
#else
#define PROOF(n) RELEASED(n)
#endif
#define ENDED(n) (va[n].here && ((!va[n].attached && va[n].retired >= epoch) || RELEASED(n)))
#define REVOCABLE(n) (revokes && va[n].here && va[n].deleting && va[n].storageFin && NOTICED(n))

proctype orderly() {
	byte ep, n;
#ifdef LOSE
	bit was;
#endif
end:
idle:
	atomic { ep = 0; n = 0; FORGET };
	do
#ifdef CLAIM_READ_LAST
	:: atomic { CANGO(0) && RELEASED(0) -> n = 0; break }	/* as the code is: the attachment first ... */
	:: atomic { CANGO(1) && RELEASED(1) -> n = 1; break }
#else
	:: atomic { CANGO(0) && PROOF(0) && HELDBY(0) -> ep = epoch; READ; break }
	:: atomic { CANGO(1) && PROOF(1) && HELDBY(1) -> ep = epoch; READ; break }
#endif
	:: atomic { CANGO(0) && RELEASED(0) && !HELDBY(0) && !WAITS(0) -> va[0].claimFin = 0; settle(0) }
	:: atomic { CANGO(1) && RELEASED(1) && !HELDBY(1) && !WAITS(1) -> va[1].claimFin = 0; settle(1) }
	od;
#ifdef CLAIM_READ_LAST
	if	/* ... and then the claim */
	:: atomic { HELDBY(n) -> ep = epoch }
	:: atomic { !HELDBY(n) -> goto idle }
	fi;
#endif
	if
	:: atomic { UNCHANGED && phase != FREE && epoch == ep -> phase = FREE; holder = NONE; goto idle }
	:: atomic { !(UNCHANGED && phase != FREE && epoch == ep) -> goto idle }
	FAIL
	fi
}

/* ---- pkg/controller/failover: Reconciler; pkg/writer: receipt.go, claim.go ---- */

proctype failover() {
	bit b;
	byte ep;
#ifdef LOSE
	bit was;
#endif
end:
idle:
	atomic { b = 0; ep = 0; FORGET };
	do
	/* The host is judged to be dead, rightly or not. Its deletion of the
	   attachment is the user's in hostcluster: it may come or not. */
	:: atomic { phase == GRANTED LIVEFENCE -> phase = FENCING }
	/* revoke: a DPU that is silent, or is taken to be */
	:: atomic { phase == FENCING && REVOCABLE(holder) && svva[holder] -> svva[holder] = 0 }
	/* prove */
#ifdef NO_RECEIPT
	:: atomic { phase == FENCING -> ep = epoch; break }
#endif
	:: atomic { phase == FENCING && ENDED(holder) && SAME(holder) -> ep = epoch; READ; break }
	:: atomic { phase == FENCING && REVOCABLE(holder) && !svva[holder] -> ep = epoch; b = 1; READ; break }
#ifdef MEDIUM
	/* the storage accepts nothing of the epoch any more */
#ifdef UNFENCED_RECEIPT
	:: atomic { phase == FENCING && va[holder].here -> ep = epoch; b = 1; READ; break }
#else
	:: atomic { phase == FENCING && va[holder].here && fencedBelow > epoch -> ep = epoch; b = 1; READ; break }
#endif
#endif
#ifdef VOUCH
	/* an operator's word */
	:: atomic { WORD -> ep = epoch; b = 1; READ; break }
#endif
	/* disown: a DPU that has retired its epoch, or was never granted one, and is silent since.
	   The claim is compared when it is written, and what OVER says of an attachment stays so. */
	:: atomic { MAYDISOWN(0) && revokedEpoch[0] < DISOWNED(0) -> revokedEpoch[0] = DISOWNED(0) }
	:: atomic { MAYDISOWN(1) && revokedEpoch[1] < DISOWNED(1) -> revokedEpoch[1] = DISOWNED(1) }
	/* letGo: an epoch that is on record as ended so, or by the storage; a DPU that is silent */
	:: atomic { MAYLETGO(0) -> va[0].dpuFin = 0; va[0].claimFin = 0; settle(0) }
	:: atomic { MAYLETGO(1) -> va[1].dpuFin = 0; va[1].claimFin = 0; settle(1) }
	/* or nothing was ever granted to anybody */
	:: atomic { va[0].here && NEVER(0) && epoch == 0 -> va[0].dpuFin = 0; va[0].claimFin = 0; settle(0) }
	:: atomic { va[1].here && NEVER(1) && epoch == 0 -> va[1].dpuFin = 0; va[1].claimFin = 0; settle(1) }
	od;
	if
	:: atomic { UNCHANGED && phase == FENCING && epoch == ep ->
		if :: b -> revokedEpoch[holder] = ep :: else fi;
		phase = FREE; holder = NONE; goto idle }
#ifdef VOUCH
	:: atomic { phase == GRANTED && epoch == ep && b && !(va[holder].here && SAME(holder)) -> revokedEpoch[holder] = ep; phase = FREE; holder = NONE; goto idle }
#endif
	:: atomic { !(UNCHANGED && phase == FENCING && epoch == ep) -> goto idle }
	FAIL
	fi
}

/* ---- pkg/controller/dpucluster/attachment, and the vendor's attacher ---- */

/* cleared: a storage that was closed by receipt B is opened again only after the
   DPU itself has said, on the new attachment, that it shows nothing. */
#ifdef REOPENED_EARLY
#define CLEARED(d) true
#else
#ifdef REOPENED_UNNOTICED
#define CLEARED(d) (va[d].retired >= UNCLEARED(d))
#else
#define CLEARED(d) (!BEHIND && va[d].retired >= UNCLEARED(d))
#endif
#endif

/* The DPU may still hold the claim for another attachment of the name, which is gone: what was
   shown for that one is shown still, and the storage may be closing. */
#ifdef ASKED_FOR_ANOTHER
#define ANOTHERS(d) false
#else
#define ANOTHERS(d) (phase != FREE && holder == d && !SAME(d))
#endif

proctype storage(bit d) {
end:
	do
	/* hold, with the resourceVersion */
	:: atomic { va[d].here && !va[d].deleting && !va[d].storageFin -> va[d].storageFin = 1 }
	/* ask; as long as the cache is behind, for what is going too */
	:: atomic { va[d].storageFin && !va[d].noticed && !svva[d] && CLEARED(d) && !ANOTHERS(d) -> svva[d] = 1; onlyOne() }
#ifdef NOTICED_BY_WORDS
	/* a pass that is not complete says so */
	:: atomic { va[d].storageFin && !va[d].words -> va[d].words = 1 }
#endif
	/* detach: from here on it never asks again for this attachment */
	:: atomic { va[d].deleting && va[d].storageFin && !va[d].noticed -> va[d].noticed = 1 }
	:: atomic { va[d].noticed && !va[d].dpuFin && svva[d] -> svva[d] = 0 }
	:: atomic { va[d].noticed && !va[d].dpuFin && !svva[d] -> va[d].storageFin = 0; settle(d) }
	od
}

#ifdef MEDIUM
/* ---- pkg/writer: medium.go; pkg/controller/attacher, and the vendor's Fence ---- */

/* What was asked for may be done any time after: the next epoch while this one is being fenced,
   and an epoch that was granted. */
proctype medium() {
end:	do
	:: atomic { phase != GRANTED && fencedBelow <= epoch -> fencedBelow = epoch + 1 }
	:: atomic { va[0].here && fencedBelow < va[0].epoch -> fencedBelow = va[0].epoch }
	:: atomic { va[1].here && fencedBelow < va[1].epoch -> fencedBelow = va[1].epoch }
	od
}
#endif

#ifdef VOUCH
/* ---- a person, by docs/failover.md; pkg/writer: vouch.go ---- */

proctype operator() {
	byte d;
end:	do
	/* pulled; what it had sent is waited for; and vouched for */
	:: atomic { !vouched && phase != FREE && holder != NONE -> vouched = 1; d = holder; pulled[d] = 1;
		HIDE; UNSEND; late[d] = 0; wordD = d; wordEpoch = epoch; break }
	od;
	/* put back */
#ifdef WORD_KEPT
	atomic { pulled[d] = 0; boots[d]++ }
#else
	atomic { wordD = NONE; wordEpoch = 0; pulled[d] = 0; boots[d]++ }
#endif
}
#endif

init {
	atomic {
#ifdef REVOKES
		revokes = REVOKES;
#else
		if :: revokes = 0 :: revokes = 1 fi;
#endif
		run snap(0); run snap(1); run dpu(0); run dpu(1); run hostcluster(0); run hostcluster(1);
		run orderly(); run failover();
		/* The storage's side matters only where it revokes. */
		if :: revokes -> run storage(0); run storage(1) :: else fi
#ifdef LEADERS
		; run orderly()
#endif
#ifdef MEDIUM
		; run medium()
#endif
#ifdef VOUCH
		; run operator()
#endif
	}
}

#ifdef LIVE
/* DPU 0 gets the claim and loses it, in order or by a fence. If nothing crashes
   and caches catch up, DPU 1, which waits, gets and shows it. */
ltl granted { <> (shown[1] != 0) }
#endif
