package simulate

import (
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/hardware"
	"github.com/moor-storage/moor/test/simulate/judge"
	"github.com/moor-storage/moor/test/simulate/plan"
)

// moved is volume v1 on host a, and then on host b.
func moved() plan.Plan {
	p := plan.Plan{Hosts: 2, Volumes: 1, Length: 40 * time.Second, Prompt: true}
	for i, host := range []string{"a", "b"} {
		p.Add(plan.Event{What: plan.Move, Who: "v1", Where: host, At: time.Duration(i) * 20 * time.Second})
	}
	return p
}

// TestPlanted: each kind of violation is found where a bug is planted that causes it, and
// not where there is none.
func TestPlanted(t *testing.T) {
	for name, tc := range map[string]struct {
		plan  func(*plan.Plan)
		plant func(*World)
		want  string
		// receipt is one that has to be given, and without one that must not.
		receipt, without moorv1alpha1.ReceiptKind
	}{
		"none": {},
		"SNAP says that it has withdrawn, and shows on": {
			plant: func(w *World) { w.Cards[0].Lies.Withdrawn = true },
			want:  judge.LateWrite,
		},
		"both are shown, and the storage takes both": {
			plant: func(w *World) {
				w.Cards[0].Lies.Withdrawn = true
				w.Judge.Ignore(judge.LateWrite, judge.OlderWrite)
			},
			want: judge.TwoShow,
		},
		"the storage revokes him who shows on": {
			plan:  func(p *plan.Plan) { p.Revokes = true },
			plant: func(w *World) { w.Cards[0].Lies.Withdrawn = true },
		},
		"writes are on their way when the device is taken away": {
			plant: func(w *World) {
				slow(w)
				w.Judge.Ignore(judge.LateWrite)
			},
			want: judge.OlderWrite,
		},
		"a claim is freed without a receipt": {
			plant: func(w *World) { w.Engine.After(15*time.Second, func() { free(w) }) },
			want:  judge.LateWrite,
		},
		"a claim is freed, and leaves an epoch out": {
			plant: func(w *World) { w.Engine.After(15*time.Second, func() { leap(w) }) },
			want:  judge.Transition,
		},
		"a DPU shows what was never granted to it": {
			plant: func(w *World) {
				w.Engine.After(10*time.Second, func() {
					_, _ = w.Cards[1].Create("v1-pvc")
					_, _ = w.Cards[1].Expose(provisioner.ExposeSpec{Device: "dev_v1-pvc"})
				})
				w.Judge.Ignore(judge.TwoShow)
			},
			want: judge.NoRight,
		},
		"the storage revokes a host that is cut off, and writes on": {plan: cutOff},
		"the storage says that it revokes, and does not": {
			plan:  cutOff,
			plant: func(w *World) { w.Storage.Revokes = false },
			want:  judge.LateWrite,
		},
		"the storage fences a host that is cut off, and writes on": {plan: knowsEpochs, receipt: moorv1alpha1.ReceiptMedium},
		"the storage fences, and what it has received is executed first": {
			plan:  knowsEpochs,
			plant: slow,
		},
		"the storage says that it has fenced, and executes what it has received later": {
			plan: knowsEpochs,
			plant: func(w *World) {
				slow(w)
				w.Storage.Lies.EarlyFence = true
			},
			want: judge.LateWrite,
		},
		"the storage says that it has fenced, and takes all": {
			plan:  knowsEpochs,
			plant: func(w *World) { w.Storage.Lies.NoFence = true },
			want:  judge.LateWrite,
		},
		"a host that is cut off, and writes on, is switched off with its DPU": {plan: powered(plan.PowerByHost), receipt: moorv1alpha1.ReceiptPower},
		"a DPU that is cut off, and writes on, is reset":                      {plan: powered(plan.PowerOfDPU), receipt: moorv1alpha1.ReceiptPower},
		"the BMC of a host accepts all, and does nothing": {
			plan:    powered(plan.PowerByHost),
			plant:   func(w *World) { w.bmcs["a"].host.Lies.Idle = true },
			without: moorv1alpha1.ReceiptPower,
		},
		"the BMC of a DPU accepts all, and does nothing": {
			plan:    powered(plan.PowerOfDPU),
			plant:   func(w *World) { w.bmcs["a"].dpu.Lies.Idle = true },
			without: moorv1alpha1.ReceiptPower,
		},
		"a BMC says that the host is off, which runs": {
			plan:  powered(plan.PowerByHost),
			plant: func(w *World) { w.bmcs["a"].host.Lies.Off = true },
			want:  judge.LateWrite,
		},
		"the BMC of another machine, which is off, answers for that of the host": {
			plan: powered(plan.PowerByHost),
			plant: func(w *World) {
				b := w.bmcs["a"].host
				b.Serial, b.Lies.Off = "serial-of-another", true
			},
			without: moorv1alpha1.ReceiptPower,
		},
		"a BMC says that the DPU was reset, which was not": {
			plan:  powered(plan.PowerOfDPU),
			plant: func(w *World) { w.bmcs["a"].dpu.Lies.Reset = true },
			want:  judge.LateWrite,
		},
		"the DPU has power of its own, and the installer says that it has it from the host": {
			plan:  powered(plan.PowerByHost),
			plant: func(w *World) { w.Cards[0].Lies.OwnPower = true },
			want:  judge.TwoShow,
		},
		"what was sent over a way that is lost is waited for":                        {plan: wayLost, plant: late},
		"a way is lost and found between two looks, and so is what was sent over it": {plan: wayFlickers, plant: late},
		"a driver does not look at connections, and a way is lost and found between two looks": {
			plan: wayFlickers,
			plant: func(w *World) {
				late(w)
				w.blind = true
			},
			want: judge.OlderWrite,
		},
		"a driver does not know that the way is lost": {
			plan: wayLost,
			plant: func(w *World) {
				late(w)
				w.blind = true
			},
			want: judge.OlderWrite,
		},
		"a volume moves since its way is lost":                          {plan: wayStaysLost, receipt: moorv1alpha1.ReceiptMedium},
		"a DPU that is cut off with its host stops when its lease ends": {plan: leased},
		"SNAP goes on when the lease has ended, and the watchdog ends it": {
			plan:  leased,
			plant: func(w *World) { w.Cards[0].Lies.Withdrawn = true },
		},
		"SNAP goes on when the lease has ended, and nothing ends it": {
			plan: leased,
			plant: func(w *World) {
				w.Cards[0].Lies.Withdrawn, w.Cards[0].Lies.Undying = true, true
			},
			want: judge.LateWrite,
		},
		"nothing carries what is asked for": {
			plant: func(w *World) { w.processOf("hosts").missing = true },
			want:  judge.Stuck,
		},
		"an attachment waits without a word": {
			plant: func(w *World) {
				w.processOf("storage").missing = true
				w.Words = func(*storagev1alpha1.DPUVolumeAttachment) string { return "not ready" }
			},
			want: judge.Silent,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := moved()
			if tc.plan != nil {
				tc.plan(&p)
			}
			r := Run(t, 1, p, tc.plant)
			if tc.want != "" && !r.Broken(tc.want) || tc.want == "" && len(r.Violations) > 0 {
				t.Errorf("found %v, want %q", r.Violations, tc.want)
			}
			if tc.receipt != "" && r.Played["receipt "+string(tc.receipt)] == 0 || tc.without != "" && r.Played["receipt "+string(tc.without)] > 0 {
				t.Errorf("receipts %v, want %q and not %q", r.Played, tc.receipt, tc.without)
			}
		})
	}
}

// cutOff is volume v1 on host a, which is cut off with its DPU, and whose storage revokes.
func cutOff(p *plan.Plan) {
	p.Revokes, p.Length, p.Events = true, 3*time.Minute, p.Events[:1]
	p.Add(plan.Event{What: plan.Cut, Who: "dpu-a", At: 20 * time.Second, For: 2 * time.Minute})
	p.Add(plan.Event{What: plan.Cut, Who: "host a", At: 20 * time.Second, For: 2 * time.Minute})
}

// knowsEpochs is cutOff, of a storage that does not revoke, and knows epochs.
func knowsEpochs(p *plan.Plan) {
	cutOff(p)
	p.Revokes, p.Epochs = false, true
}

// powered is cutOff for longer, of a storage that does not revoke, with BMCs.
func powered(by string) func(*plan.Plan) {
	return func(p *plan.Plan) {
		leased(p)
		p.Leases, p.Power = false, by
	}
}

// wayLost is volume v1 on host a, whose DPU does not reach the storage when the volume moves to host b.
func wayLost(p *plan.Plan) {
	p.Ways = true
	p.Add(plan.Event{What: plan.LoseWay, Who: "v1", At: 18 * time.Second, For: 20 * time.Second})
}

// wayStaysLost is volume v1 on host a, with a replica on host b, whose DPU alone reaches the storage, which knows epochs.
func wayStaysLost(p *plan.Plan) {
	p.Ways, p.Replicas, p.Epochs, p.Length, p.Events = true, true, true, 2*time.Minute, p.Events[:1]
	p.Add(plan.Event{What: plan.LoseWay, Who: "v1", At: 18 * time.Second, For: 90 * time.Second})
}

// wayFlickers is wayLost for less than the time between two looks.
func wayFlickers(p *plan.Plan) {
	p.Ways = true
	p.Add(plan.Event{What: plan.LoseWay, Who: "v1", At: 18 * time.Second, For: 200 * time.Millisecond})
}

// late lets what SNAP of the first DPU has sent when its way is lost arrive as late as it may.
func late(w *World) { w.Cards[0].Lies.Late = true }

// leased is cutOff for longer, of DPUs that promise to stop, and a storage that does not revoke.
func leased(p *plan.Plan) {
	cutOff(p)
	p.Revokes, p.Leases, p.Length = false, true, 6*time.Minute
	for i := range p.Events {
		p.Events[i].For *= 2
	}
}

// slow lets SNAP of the first DPU leave writes on their way, for long.
func slow(w *World) {
	w.Cards[0].Lies.InFlight = true
	w.Storage.Slow = map[string]time.Duration{w.Cards[0].Name: hardware.DrainBound}
}

// free frees a claim that is granted, as no program may, of a DPU that learns of it too late.
func free(w *World) { freeAt(w, 0) }

// leap is free, and an epoch is left out, as no program may.
func leap(w *World) { freeAt(w, 1) }

func freeAt(w *World, more int64) {
	w.down["dpu-a"] = true
	claim, found := cluster.Find[*moorv1alpha1.WriterClaim](w.DPU, kubetest.DPUNamespace, "v1")
	if !found || claim.Status == nil {
		return
	}
	after := claim.DeepCopy()
	after.Status.Phase, after.Status.Holder, after.Status.Attachment, after.Status.AttachmentUID = moorv1alpha1.ClaimFree, "", "", ""
	after.Status.Epoch += more
	w.must(w.DPU.UpdateStatus(after))
}

// TestShrink: what a plan does not need to fail is left out, and it still fails.
func TestShrink(t *testing.T) {
	plant := func(w *World) {
		for _, card := range w.Cards {
			card.Lies.Withdrawn = true
		}
	}
	found := 0
	for seed := uint64(1); found < 3; seed++ {
		p := plan.New(seed)
		p.Revokes = false
		r := Run(t, seed, p, plant)
		if len(r.Violations) == 0 && seed < 20 { // nothing was moved
			continue
		}
		found++
		rule := r.Violations[0].Rule
		less := plan.Shrink(p, func(p plan.Plan) bool { return Run(t, seed, p, plant).Broken(rule) })
		if !Run(t, seed, less, plant).Broken(rule) || 2*len(less.Events) > len(p.Events) {
			t.Errorf("seed %d: %d events of %d are left: %s", seed, len(less.Events), len(p.Events), less)
		}
	}
}
