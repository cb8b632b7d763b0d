package dpu

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// drainTime is how long the storage may take over what it has received.
const drainTime = 10 * time.Second

// ways are how a volume is taken from a DPU.
var ways = map[string]func(*cluster, *storagev1alpha1.VolumeAttachment){
	"detach": func(c *cluster, a *storagev1alpha1.VolumeAttachment) { c.must(c.Delete(c.t.Context(), a)) },
	"fence":  func(c *cluster, a *storagev1alpha1.VolumeAttachment) { c.fence(a.Name, 1) },
}

// withheld fails if the DPU has given its receipt, or shows the volume.
func (m *machine) withheld(name string) {
	m.t.Helper()
	now := m.c.get(name)
	if now == nil || now.Status.DPU.RetiredEpoch != 0 || !controllerutil.ContainsFinalizer(now, storagev1alpha1.FinalizerDPUAttachment) {
		m.t.Fatalf("a receipt while requests may be on their way: %+v", now)
	}
	if m.shown()["dev_v1-pvc"].Visible || now.Status.DPU.Attached {
		m.t.Fatalf("shown meanwhile: %+v", now.Status)
	}
	if !strings.Contains(now.Status.Message, "SNAP service nvidia had ended, or lost its way") {
		m.t.Fatalf("does not say why: %q", now.Status.Message)
	}
}

// given fails if the DPU has not given its receipt.
func (m *machine) given(name string) {
	m.t.Helper()
	if now := m.c.get(name); now != nil && now.Status.DPU.RetiredEpoch != 1 {
		m.t.Fatalf("no receipt: %+v", now.Status)
	}
}

// TestNoReceiptRightAfterACrashOfSNAP: what a SNAP service had sent that died while it
// showed the volume may reach the storage after the next one shows nothing.
func TestNoReceiptRightAfterACrashOfSNAP(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			m.emu.Restart()
			take(c, a)
			c.must(m.pass(a.Name))
			m.withheld(a.Name)
			m.clock.Step(drainTime - time.Millisecond)
			c.must(m.pass(a.Name))
			m.withheld(a.Name)
			m.clock.Step(time.Millisecond)
			c.must(m.pass(a.Name))
			m.given(a.Name)
		})
	}
}

// TestShownAnewIsNotDrained: that the next incarnation shows the volume, and withdraws
// it orderly, says nothing of what the one before had sent.
func TestShownAnewIsNotDrained(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			m.emu.Restart()
			if now := m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.Undrained != a.Status.DPU.Incarnation {
				t.Fatalf("got %+v", now.Status.DPU)
			}
			m.clock.Step(drainTime - time.Second)
			take(c, a)
			c.must(m.pass(a.Name))
			m.withheld(a.Name)
			m.restartDriver() // which does not know how long ago that was
			m.clock.Step(time.Second)
			c.must(m.pass(a.Name))
			m.withheld(a.Name)
			m.clock.Step(drainTime)
			c.must(m.pass(a.Name))
			m.given(a.Name)
		})
	}
}

// TestDrained: a crash that is long ago holds nothing up, and is taken off the record by
// itself. So does none at all.
func TestDrained(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			m.emu.Restart()
			m.settle(a.Name)
			result, err := m.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
			if err != nil || result.RequeueAfter != drainTime {
				t.Fatalf("looks again after %s, %v", result.RequeueAfter, err)
			}
			m.clock.Step(drainTime)
			if now := m.settle(a.Name); now.Status.DPU.Undrained != "" || !now.Status.DPU.Attached || now.Status.Message != "" {
				t.Fatalf("still on record: %+v", now.Status)
			}
			m.restartDriver()
			take(c, a)
			c.must(m.pass(a.Name))
			m.given(a.Name)
		})
	}
}

// TestCrashDuringTheWithdrawal: the incarnation that showed the volume has to be there
// to the end of the withdrawal.
func TestCrashDuringTheWithdrawal(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			crash := m.emu.Restart
			m.watched = func(d provisioner.DPU) provisioner.DPU {
				return &withdrawing{DPU: d, before: func() { crash(); crash = func() {} }}
			}
			m.restartDriver()
			take(c, a)
			c.must(m.pass(a.Name))
			m.withheld(a.Name)
			m.clock.Step(drainTime)
			c.must(m.pass(a.Name))
			m.given(a.Name)
		})
	}
}

// TestNoReceiptOverALostWay: SNAP has taken the volume away in order, but what it had sent
// over a way that was lost may be at the storage yet. Each loss counts by itself.
func TestNoReceiptOverALostWay(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			m.ways.loss = "an earlier one"
			m.exposures.Undrained(string(a.UID), a.Status.DPU.Incarnation+" "+m.ways.loss)
			m.clock.Step(time.Hour)
			m.ways.loss = "this one"
			take(c, a)
			c.must(m.pass(a.Name))
			m.withheld(a.Name)
			m.ways.loss = "" // the way is found again
			m.clock.Step(drainTime - time.Millisecond)
			c.must(m.pass(a.Name))
			m.withheld(a.Name)
			m.clock.Step(time.Millisecond)
			c.must(m.pass(a.Name))
			m.given(a.Name)
		})
	}
}

// TestShownByAnUnknownIncarnation: a driver that recorded none has shown the volume, and
// SNAP may have ended since.
func TestShownByAnUnknownIncarnation(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Provider, d.Incarnation = "", "" }))
			m.restartDriver()
			take(c, a)
			c.must(m.pass(a.Name))
			if now := c.get(a.Name); now == nil || now.Status.DPU.RetiredEpoch != 0 || len(m.shown()) != 0 {
				t.Fatalf("got %+v, %v", now, m.shown())
			}
			m.clock.Step(drainTime)
			c.must(m.pass(a.Name))
			m.given(a.Name)
		})
	}
}

// TestDrainBeginsAtTheEnd: what could not be taken away has not ended: the time for what it had sent begins when it has.
func TestDrainBeginsAtTheEnd(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Provider, d.Incarnation = "", "" }))
	m.restartDriver()
	c.fence(a.Name, 1)
	m.refuse()
	if err := m.pass(a.Name); err == nil || c.get(a.Name).Status.DPU.Undrained != "" {
		t.Errorf("it has ended: %v, %+v", err, c.get(a.Name).Status.DPU)
	}
	m.clock.Step(drainTime)
	m.clear()
	c.must(m.pass(a.Name))
	if now := c.get(a.Name).Status.DPU; now.RetiredEpoch != 0 || len(m.shown()) != 0 {
		t.Errorf("a receipt while requests may be on their way: %+v", now)
	}
}

// TestUpgradeDisturbsNothing: what a driver has shown that recorded no incarnation stays
// shown all the time, and is drained by and by.
func TestUpgradeDisturbsNothing(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Provider, d.Incarnation = "", "" }))
	m.restartDriver()
	calls := m.calls("nvme_controller_detach_ns")
	if now := m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.Undrained == "" || now.Status.DPU.Provider != "nvidia" {
		t.Fatalf("got %+v", now.Status)
	}
	m.clock.Step(drainTime)
	if now := m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.Undrained != "" || now.Status.DPU.Incarnation == "" {
		t.Fatalf("got %+v", now.Status)
	}
	if m.calls("nvme_controller_detach_ns") != calls {
		t.Error("the volume was withdrawn meanwhile")
	}
}

// TestOtherAttachmentWasShown: what another attachment of the volume here has left on
// its way counts as well.
func TestOtherAttachmentWasShown(t *testing.T) {
	c, m, a := attached(t)
	other := c.get(a.Name)
	other.Name, other.ResourceVersion, other.UID = "dpu-1-v1-other", "", "other"
	c.must(c.Create(t.Context(), other))
	c.must(c.setDPU(other.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = a.Status.DPU; d.Undrained = "before" }))
	c.fence(a.Name, 1)
	c.must(m.pass(a.Name))
	m.withheld(a.Name)
}

// TestServerKnowsOfACrash: what the API server has on record counts, though the cache
// does not know it yet.
func TestServerKnowsOfACrash(t *testing.T) {
	c, m, a := attached(t)
	stale := c.get(a.Name)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Undrained = "before" }))
	p := newPass(stale)
	if err := m.fence.retire(t.Context(), p, 1); !waits(err) || p.dpu.RetiredEpoch != 0 || p.dpu.Undrained != "before" {
		t.Fatalf("%v, %+v", err, p.dpu)
	}
}

// TestAnotherCard: one that takes the place of another under its name, with a SNAP and a disk that know
// of nothing, gives the receipt for what the other has shown as after a reset: once that has drained.
func TestAnotherCard(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, _, a := attached(t)
			card := newMachine(t, c, "dpu-1")
			card.boot = "of another card"
			card.restartDriver()
			take(c, a)
			c.must(card.pass(a.Name))
			card.withheld(a.Name)
			card.clock.Step(drainTime)
			c.must(card.pass(a.Name))
			card.given(a.Name)
		})
	}
}

// TestManyWritersWaitForNothing: their volume has no epoch that could be retired.
func TestManyWritersWaitForNothing(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", "ReadWriteMany")
	a := m.settle(c.attachment("v1", "dpu-1").Name)
	m.emu.Restart()
	if now := m.settle(a.Name); now.Status.DPU.Undrained != "" || !now.Status.DPU.Attached {
		t.Fatalf("got %+v", now.Status)
	}
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	if left := m.settle(a.Name); left != nil {
		t.Fatalf("left: %+v", left.Status)
	}
}

// TestOrderlyEndsWaitForNothing, with whatever else SNAP did before.
func TestOrderlyEndsWaitForNothing(t *testing.T) {
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			m.restartDriver()
			take(c, a)
			c.must(m.pass(a.Name))
			m.given(a.Name)
			if now := c.get(a.Name); now != nil && slices.Contains(now.Finalizers, storagev1alpha1.FinalizerDPUAttachment) != (name == "fence") {
				t.Errorf("finalizers %v", now.Finalizers)
			}
		})
	}
}

// withdrawing is a service that tells when it is about to be told to withdraw.
type withdrawing struct {
	provisioner.DPU
	before func()
}

func (w *withdrawing) Withdraw(ctx context.Context, device string) error {
	w.before()
	return w.DPU.Withdraw(ctx, device)
}

// fakeWays are the ways of all devices.
type fakeWays struct {
	loss       string
	seen, anew []string
}

func (w *fakeWays) Loss(string) string { return w.loss }

func (w *fakeWays) Seen(path provisioner.Path) { w.seen = append(w.seen, path.Device) }

func (w *fakeWays) Anew(device string) { w.anew = append(w.anew, device) }
