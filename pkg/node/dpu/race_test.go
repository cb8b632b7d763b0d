package dpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// witness stands between the drivers and SNAP, and counts on how many DPUs the
// volume may be shown: from before an exposure begins until its withdrawal has
// been confirmed.
type witness struct {
	mu     sync.Mutex
	shown  map[string]bool
	broken string
	most   int
}

type watchedDPU struct {
	provisioner.DPU
	w    *witness
	node string
}

func (d watchedDPU) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	if spec.Hidden {
		e, err := d.DPU.Expose(ctx, spec)
		if err == nil && e.Hidden {
			d.w.mu.Lock()
			delete(d.w.shown, d.node)
			d.w.mu.Unlock()
		}
		return e, err
	}
	d.w.mu.Lock()
	d.w.shown[d.node] = true
	d.w.most = max(d.w.most, len(d.w.shown))
	if len(d.w.shown) > 1 {
		d.w.broken = fmt.Sprintf("%s exposes while %v do", d.node, d.w.shown)
	}
	d.w.mu.Unlock()
	return d.DPU.Expose(ctx, spec)
}

func (d watchedDPU) Withdraw(ctx context.Context, device string) error {
	err := d.DPU.Withdraw(ctx, device)
	if err == nil {
		d.w.mu.Lock()
		delete(d.w.shown, d.node)
		d.w.mu.Unlock()
	}
	return err
}

// authority grants and frees the claim, as snap-host-controller and fence do.
// Unlike them it keeps an attachment to every DPU standing all the time, so
// that nothing but the claim tells the DPUs apart.
type authority struct {
	c      *cluster
	epoch  int64
	holder string // "" while the claim is free
}

// step does what may be done now. want is the node that has to write.
func (a *authority) step(nodes []string, want string) {
	for _, node := range nodes {
		va := a.c.get(node + "-v1")
		switch {
		case va == nil:
			va = a.c.attachment("v1", node)
			va.Finalizers = append(va.Finalizers, storagev1alpha1.FinalizerWriterClaim)
			// A lie: the epoch of another DPU's grant.
			va.Spec.Epoch = a.epoch
			a.c.must(a.c.Update(a.c.t.Context(), va))
		case va.DeletionTimestamp.IsZero():
			if node == a.holder && node != want {
				a.c.must(a.c.Delete(a.c.t.Context(), va))
			}
		case !controllerutil.ContainsFinalizer(va, storagev1alpha1.FinalizerDPUAttachment) && !va.Status.DPU.Attached:
			// The DPU's receipt.
			if node == a.holder {
				a.c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: a.epoch})
				a.holder = ""
			}
			va.Finalizers = nil
			a.c.must(a.c.Update(a.c.t.Context(), va))
		}
	}
	if va := a.c.get(want + "-v1"); a.holder == "" && va != nil && va.DeletionTimestamp.IsZero() {
		a.epoch++
		a.holder = want
		a.c.grant(va, a.epoch)
	}
}

// fenceStep moves the right by fencing: no attachment is deleted, the one that
// loses the right becomes a replica. Only the retired epoch is a receipt.
func (a *authority) fenceStep(nodes []string, want string) {
	for _, node := range nodes {
		if a.c.get(node+"-v1") == nil {
			va := a.c.attachment("v1", node)
			va.Finalizers = append(va.Finalizers, storagev1alpha1.FinalizerWriterClaim)
			va.Spec.Role = storagev1alpha1.RoleReplica
			a.c.must(a.c.Update(a.c.t.Context(), va))
		}
	}
	if a.holder != "" && a.holder != want {
		va := a.c.get(a.holder + "-v1")
		a.c.fence(va.Name, a.epoch)
		if va.Status.DPU.RetiredEpoch < a.epoch || va.Status.DPU.Attached {
			return
		}
		a.c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: a.epoch})
		a.c.role(va.Name, storagev1alpha1.RoleReplica)
		a.holder = ""
	}
	if a.holder == "" {
		a.epoch++
		a.holder = want
		a.c.role(want+"-v1", storagev1alpha1.RolePrimary)
		a.c.grant(a.c.get(want+"-v1"), a.epoch)
	}
}

// TestOnlyOneWriter: two DPUs compete for a single-writer volume that moves
// back and forth, while passes of both run at any time, drivers restart, SNAP
// drops calls and writes to the API fail. Never may both show it.
func TestOnlyOneWriter(t *testing.T) {
	t.Run("detached", func(t *testing.T) { compete(t, (*authority).step) })
	t.Run("fenced", func(t *testing.T) { compete(t, (*authority).fenceStep) })
}

func compete(t *testing.T, step func(*authority, []string, string)) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t)
	c.volume("v1", corev1.ReadWriteOnce)
	w := &witness{shown: map[string]bool{}}
	nodes := []string{"dpu-1", "dpu-2"}
	machines := map[string]*machine{}
	for _, node := range nodes {
		m := newMachine(t, c, node)
		m.watched = func(d provisioner.DPU) provisioner.DPU { return watchedDPU{d, w, node} }
		m.restartDriver()
		machines[node] = m
	}
	a := &authority{c: c}
	var faults sync.Mutex
	c.onWrite = func(_ string, effect func() error) error {
		faults.Lock()
		strike := dice.IntN(20)
		faults.Unlock()
		switch strike {
		case 0:
			return errCrash
		case 1:
			_ = effect()
			return errCrash
		}
		return effect()
	}
	moves := 0
	for round := range 100 {
		want := nodes[round%2]
		methods := []string{"nvme_controller_attach_ns", "nvme_controller_detach_ns", "nvme_controller_create", "nvme_subsystem_list"}
		faults.Lock()
		victim, method, when := machines[nodes[dice.IntN(2)]], methods[dice.IntN(4)], []string{"before", "after"}[dice.IntN(2)]
		restart := dice.IntN(3) == 0
		faults.Unlock()
		victim.inject(map[string]any{"method": method, "when": when, "drop": true})
		if restart {
			victim.restartDriver()
		}
		for range 60 {
			var passes sync.WaitGroup
			for _, m := range machines {
				for _, node := range nodes {
					passes.Go(func() { _ = m.pass(node + "-v1") })
				}
			}
			passes.Wait()
			step(a, nodes, want)
			if now := c.get(want + "-v1"); now != nil && now.Status.DPU.Attached && now.DeletionTimestamp.IsZero() {
				moves++
				break
			}
		}
		if w.broken != "" {
			t.Fatalf("round %d: %s", round, w.broken)
		}
		for _, m := range machines {
			m.clear()
		}
		shown := 0
		for _, m := range machines {
			for _, e := range m.shown() {
				if e.Visible {
					shown++
				}
			}
		}
		if shown > 1 {
			t.Fatalf("round %d: both DPUs show the volume", round)
		}
	}
	if moves != 100 || w.most != 1 {
		t.Fatalf("the volume moved in %d of 100 rounds, shown on %d at most", moves, w.most)
	}
}
