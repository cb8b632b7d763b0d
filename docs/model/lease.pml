/*
 * The lease bound: one DPU whose driver promises to stop, its watchdog, and the
 * fence that takes the promise for a receipt. README.md says what is modelled and
 * how to run it; claim.pml has the claim itself, without time.
 *
 * Time goes in ticks. Between two ticks anything may happen in any order, and any
 * process may stand still for any number of them: that is a pause, a late message
 * and a slow machine. Each of the three clocks may be wrong by one tick, to its
 * worst. 'die' flags are a death of the driver: all that it knew is forgotten.
 */
#ifndef L
#define L 2		/* the lease, in ticks of the DPU's clock */
#endif
#ifndef W
#define W 2		/* the watchdog's timeout, in ticks of its own clock */
#endif
#define S 1		/* what the storage has received still lands for so long */
#ifndef GRACE
#define GRACE (3 * W + S)
#endif
/* By the fence's clock. What the three clocks may be wrong by, a tick each, is what
   three feeds lose by lying between ticks: it is just enough. */
#define BOUND (L + GRACE)

#define GRANTED 0
#define FENCING 1
#define FREE 2		/* and so another DPU writes */
/* pkg/node/selffence/decide.go */
#define UNKNOWN 0
#define UNBOUND 1
#define HELD 2		/* 'bound' there */
#define LAPSED 3

/* The API server: the claim, whether the last beat that was accepted carries a
   lease, whether the fence has not seen it yet. */
byte claim;
bit offered, unseen;
/* Beats on their way: of this process (0 is none, 1 without a lease, 2 with one), and
   one with a lease that is waited for no longer. */
byte sent;
bit stray, answer;

/* The machine: what SNAP shows, a call that SNAP has still to execute, writes of
   before a reset that still land, the watchdog (0: it does not run). */
bit shown, call;
byte late, dog;

/* The driver. */
byte phase, lease, age;	/* age of the beat that is waited for */
bit waiting, open, clear, running, permit;
bit dieK, dieH, dieP;

/* The fence. */
byte waited;
bit known;

/* Whether a clock may still go wrong. */
bit dpuSlow = 1, dogSlow = 1, fenceFast = 1;

#define GOOD (phase == UNBOUND || phase == HELD)
#ifdef SLOPPY_FEED
#define HARMLESS true
#else
#define HARMLESS (GOOD || clear)
#endif

inline forget() {
	phase = UNKNOWN; lease = 0; age = 0; open = 0; clear = 0; running = 0; permit = 0;
	stray = stray || sent == 2; sent = 0; waiting = 0;
	answer = 0; dieK = 1; dieH = 1; dieP = 1
}

/* The machine starts anew: no write begins after, and what was begun lands. */
inline reset() {
	if :: shown -> late = S :: else fi;
	shown = 0; call = 0; dog = 0;
	forget()
}

active proctype time() {
	do
	:: atomic {
		if	/* the DPU's clock */
		:: age = (waiting && age < L -> age + 1 : age);
			if
			:: lease > 0 -> lease--;
				if :: lease == 0 && phase == HELD -> phase = LAPSED; permit = 0 :: else fi
			:: else
			fi
		:: dpuSlow -> dpuSlow = 0
		fi;
		if :: late > 0 -> late-- :: else fi;
		if	/* the watchdog's */
		:: dog > 0 -> dog--;
#ifdef NO_WATCHDOG
			skip
#else
			if :: dog == 0 -> reset() :: else fi
#endif
		:: dog > 0 && dogSlow -> dogSlow = 0
		:: dog == 0
		fi;
		if	/* the fence's */
		:: waited = (known && waited < BOUND -> waited + 1 : waited)
		:: known && fenceFast -> fenceFast = 0; waited = (waited + 2 < BOUND -> waited + 2 : BOUND)
		fi
	}
	od
}

/* The driver dies, and is started again. Linux feeds a watchdog whose device is
   closed; so it does one that is opened. */
active proctype death() {
	do
	:: atomic { !(dieK && dieH && dieP) ->
		if :: open && dog > 0 -> dog = W :: else fi; forget() }
	/* in order: the watchdog is stopped if no writer can be hurt */
#ifdef DISARMED
	:: atomic { open -> dog = 0; forget() }
#else
	:: atomic { open && (clear || phase == UNBOUND) && !running -> dog = 0; forget() }
#endif
	od
}

active proctype snap() {
	do
	:: atomic { call -> call = 0; shown = 1; assert(claim != FREE) }	/* SW */
	od
}

/* keeper.go: decides, and then does; a pause may lie between. */
active proctype keeper() {
	bit feed;
idle:
	atomic { dieK = 0; feed = 0 };
	do
	:: atomic { !dieK && open && HARMLESS -> feed = 1; break }
#ifdef OPENED_EARLY
	:: atomic { !dieK && !open -> break }
#else
	:: atomic { !dieK && !open && HARMLESS -> break }
#endif
	/* withdraw, and look: SNAP executes what it was told before first */
	:: atomic { !dieK && !GOOD && !call && shown -> shown = 0 }
#ifdef CLEAR_IN_HASTE
	:: atomic { !dieK && !GOOD && !shown && !clear -> clear = 1 }
#else
	:: atomic { !dieK && !GOOD && !call && !running && !shown && !clear -> clear = 1 }
#endif
	:: dieK -> goto idle
	od;
	if
	:: atomic { !dieK && feed -> dog = W; goto idle }
	:: atomic { !dieK && !feed -> open = 1; dog = W; goto idle }
	:: dieK -> goto idle
	fi
}

/* pkg/node/heartbeat, with State and Answered of keeper.go */
active proctype heart() {
	bit with;
idle:
	atomic { dieH = 0; with = 0 };
	do
	:: atomic { !dieH && sent == 0 ->
		waiting = 1;
		with = open && phase != UNKNOWN;
		if :: with && phase == UNBOUND -> phase = HELD; lease = L :: else fi;
		sent = 1 + with; break }
	:: dieH -> goto idle
	od;
	if
	:: atomic { !dieH && answer -> answer = 0;
		if
		:: !with -> phase = UNBOUND
#ifdef COUNTED_FROM_ANSWER
		:: with && phase == HELD -> lease = L
#else
		:: with && phase == HELD && L - age > lease -> lease = L - age
#endif
#ifdef RENEWED_UNCLEARED
		:: with && phase == LAPSED && age < L -> phase = HELD; lease = L - age
#else
		:: with && phase == LAPSED && clear && age < L -> phase = HELD; lease = L - age
#endif
		:: else
		fi; age = 0; waiting = 0; goto idle }
	/* no answer comes in time; the beat may be accepted later */
	:: atomic { !dieH && !answer -> stray = stray || sent == 2; sent = 0; age = 0; waiting = 0; goto idle }
	:: dieH -> goto idle
	fi
}

/* The API server accepts a beat only of one who knew the last one before. */
active proctype api() {
	do
	:: atomic { sent != 0 -> offered = (sent == 2); unseen = 1; sent = 0; answer = 1;
#ifndef NOT_EXACT
		stray = 0
#endif
		}
	:: atomic { stray -> offered = 1; unseen = 1; stray = 0;
#ifndef NOT_EXACT
		sent = 0
#endif
		}
	od
}

/* pkg/node/dpu: permit, the claim, Enter, the call. */
active proctype pass() {
idle:
	atomic { dieP = 0; running = 0; permit = 0 };
	do
#ifdef CLAIM_FIRST
	:: atomic { !dieP && !shown && claim == GRANTED -> break }
#else
	:: atomic { !dieP && GOOD && !shown -> permit = 1; break }
#endif
	:: dieP -> goto idle
	od;
	if
#ifdef CLAIM_FIRST
	:: atomic { !dieP && GOOD -> permit = 1 }
#else
	:: atomic { !dieP && claim == GRANTED }
#endif
	:: else -> goto idle
	fi;
	if
#ifdef NO_TERM
	:: atomic { !dieP && GOOD -> running = 1; clear = 0; call = 1 }
#else
	:: atomic { !dieP && GOOD && permit -> running = 1; clear = 0; call = 1 }
#endif
	:: else -> goto idle
	fi;
	if	/* SNAP answers; or the call is broken off, and executed all the same */
	:: atomic { !call || dieP -> goto idle }
	:: goto idle
	fi
}

/* pkg/controller/failover/lease.go */
active proctype fence() {
	do
	/* the watch, at last */
	:: atomic { unseen -> known = offered; unseen = 0;
#ifndef RENEWALS_IGNORED
		waited = 0
#endif
		}
	/* a restart: what stands there is seen anew */
	:: atomic { waited = 0; known = offered; unseen = 0 }
	/* the host, or the DPU, is judged to be dead, rightly or not */
#ifndef FENCED_LAST
	:: atomic { claim == GRANTED -> claim = FENCING }
#endif
#ifdef FENCED_LAST
	:: atomic { claim == GRANTED && known && waited == BOUND && !unseen && offered } ; claim = FENCING; goto free
#else
#ifdef CACHE_TRUSTED
	:: atomic { claim == FENCING && known && waited == BOUND } ; goto free
#else
	/* read live: what was not seen begins the wait anew */
	:: atomic { claim == FENCING && known && waited == BOUND && unseen -> waited = 0; known = offered; unseen = 0 }
	:: atomic { claim == FENCING && known && waited == BOUND && !unseen } ; goto free
#endif
#endif
	od;
free:
	atomic {
#ifdef REACHED
		assert(false);
#endif
		claim = FREE;
		assert(!shown && late == 0)	/* SW */
	}
}
