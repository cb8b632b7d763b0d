package dpu

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// lose has the claim of v1 be lost, with the attachment as the one that may write under the epoch.
func (c *cluster) lose(a *storagev1alpha1.VolumeAttachment, epoch int64) {
	c.t.Helper()
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{
		Phase: moorv1alpha1.ClaimLost, Holder: a.Spec.NodeName, Epoch: epoch,
		Lost: []moorv1alpha1.LostHolder{{DPU: a.Spec.NodeName, Attachment: a.Name, AttachmentUID: a.UID, Epoch: epoch}},
	})
}

// unlisted has no list of attachments answered: by the cache, or by the API server itself.
type unlisted struct{ client.Client }

func (unlisted) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errNoAnswer
}

// TestLostClaimOfWhatIsOnRecord: what the attachment has on record is withdrawn like all else, SNAP has to
// confirm it, and the pass after that waits for a new grant. What is said to be shown later is withdrawn again.
func TestLostClaimOfWhatIsOnRecord(t *testing.T) {
	c, m, a := attached(t)
	c.lose(a, 1)
	m.refuse()
	if err := m.pass(a.Name); err == nil || c.get(a.Name).Status.DPU.ClearedEpoch != 0 {
		t.Fatalf("it says that it has cleared up: %v, %+v", err, c.get(a.Name).Status.DPU)
	}
	m.clear()
	c.must(m.pass(a.Name))
	now := c.get(a.Name)
	if d := now.Status.DPU; d.ClearedEpoch != 1 || d.RetiredEpoch != 1 || d.Attached || d.Epoch != 0 || !strings.Contains(now.Status.Message, "epoch 1 is over") || len(m.shown()) != 0 {
		t.Fatalf("not cleared up: %+v, %v", now.Status, m.shown())
	}
	if now = m.settle(a.Name); !strings.Contains(now.Status.Message, "has lost its record of who may write") {
		t.Errorf("it says %q", now.Status.Message)
	}
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Attached, d.Epoch = true, 1 }))
	for _, want := range []string{"(--lease-drain)", "epoch 1 is over"} {
		c.must(m.pass(a.Name))
		if now = c.get(a.Name); now.Status.DPU.Attached || !strings.Contains(now.Status.Message, want) {
			t.Errorf("what is said to be shown is not withdrawn: %+v", now.Status)
		}
		if want != "epoch 1 is over" {
			c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Attached = true }))
		}
		m.clock.Step(drainTime)
	}
}

// TestLostClaimNeedsSNAP: while SNAP does not say what it shows, or does not take it away, the DPU gives no
// word about a claim that was lost, and its attachment stays.
func TestLostClaimNeedsSNAP(t *testing.T) {
	for fault, inject := range map[string]func(*machine){
		"it does not list": func(m *machine) {
			m.inject(map[string]any{"method": "nvme_subsystem_list", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
		},
		"it does not withdraw": (*machine).refuse,
	} {
		for when, deleting := range map[string]bool{"the attachment stays": false, "the attachment goes": true} {
			t.Run(fault+", and "+when, func(t *testing.T) {
				c, m, a := attached(t)
				c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }))
				c.held(a.Name)
				c.lose(a, 3)
				c.must(os.Remove(m.journal())) // which would tell of an epoch that was forgotten
				m.restartDriver()
				if deleting {
					c.must(c.Delete(t.Context(), c.get(a.Name)))
				}
				inject(m)
				m.vendor.fail["DeleteDevice"] = provisioner.ErrUnavailable
				for range 3 {
					if err := m.pass(a.Name); err == nil || waits(err) {
						t.Errorf("it says %v", err)
					}
					m.clock.Step(drainTime)
				}
				if now := c.get(a.Name); now.Status.DPU.ClearedEpoch != 0 || len(now.Finalizers) != 2 {
					t.Errorf("it says that it has cleared up: %v, %+v", now.Finalizers, now.Status.DPU)
				}
				if !m.vendor.pending("DeleteDevice") {
					t.Error("the vendor is asked to remove the device")
				}
			})
		}
	}
}

// TestLostClaimIsDrained: what is waited for is told while what was sent may be on its way, and nothing is
// made or shown meanwhile, with its vendor or without.
func TestLostClaimIsDrained(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }))
	c.lose(a, 3)
	c.must(os.Remove(m.pluginSocket()))
	c.must(m.pass(a.Name))
	if now := c.get(a.Name); now.Status.DPU.ClearedEpoch != 0 || !strings.Contains(now.Status.Message, "(--lease-drain)") || len(m.shown()) != 0 {
		t.Errorf("got %+v, %v", now.Status, m.shown())
	}
}

// TestObeyNeedsTheClaim: while it is not known whether the volume is being taken, nothing is made of it, not
// even for a replica.
func TestObeyNeedsTheClaim(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.role(a.Name, storagev1alpha1.RoleReplica)
	c.held(a.Name)
	m.reading().silent = &moorv1alpha1.WriterClaim{}
	for range 3 {
		if err := m.pass(a.Name); !errors.Is(err, errNoAnswer) {
			t.Errorf("it says %v", err)
		}
	}
	if len(m.vendor.opened) != 0 {
		t.Errorf("made of %+v", m.vendor.opened)
	}
}

// TestFencedAgain: an epoch that is retired stays so, and what the record says of a device that is shown under
// it nevertheless is made untrue again.
func TestFencedAgain(t *testing.T) {
	c, m, a := attached(t)
	c.role(a.Name, storagev1alpha1.RoleReplica)
	c.fence(a.Name, 1)
	m.settle(a.Name)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Attached = true }))
	c.must(m.pass(a.Name))
	if now := c.get(a.Name); now.Status.DPU.Attached || now.Status.DPU.PreEmulated || len(m.shown()) != 0 {
		t.Errorf("got %+v, %v", now.Status.DPU, m.shown())
	}
}

// TestFencedIsNoBackup: an epoch that ended in order is in the journal as well, and is no sign of a cluster
// that was restored.
func TestFencedIsNoBackup(t *testing.T) {
	c, m, a := shownUnderSeven(t)
	for phase, want := range map[moorv1alpha1.ClaimPhase]string{
		moorv1alpha1.ClaimFencing: "is being fenced", moorv1alpha1.ClaimFree: "waits for snap-host-controller to grant",
	} {
		c.fence(a.Name, 7)
		m.settle(a.Name)
		c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: "dpu-1", Attachment: a.Name, AttachmentUID: a.UID, Epoch: 7})
		if now := m.settle(a.Name); now.Status.DPU.RetiredEpoch != 7 || !strings.Contains(now.Status.Message, want) {
			t.Errorf("%s: %+v", phase, now.Status)
		}
	}
}

// TestGivenBackWithoutTheVendor: an epoch of a restored cluster is given back whatever the vendor does, but not
// before SNAP has taken away what it shows.
func TestGivenBackWithoutTheVendor(t *testing.T) {
	c, m, a := shownUnderSeven(t)
	c.strip(a.Name)
	c.grant(c.attachment("v1", "dpu-1"), 3)
	m.restartDriver()
	c.must(os.Remove(m.pluginSocket()))
	m.refuse()
	if err := m.pass(a.Name); err == nil || c.get(a.Name).Status.DPU.RetiredEpoch != 0 {
		t.Errorf("given back while it is shown: %v, %+v", err, c.get(a.Name).Status.DPU)
	}
	m.clear()
	for range 2 {
		c.must(m.pass(a.Name))
		m.clock.Step(drainTime)
	}
	if now := c.get(a.Name); now.Status.DPU.RetiredEpoch != 7 || !strings.Contains(now.Status.Message, "restored from a backup") {
		t.Errorf("not given back: %+v", now.Status)
	}
}

// TestFenceIsNotPolled: what waits for the next grant is woken by that, and is not looked at again before.
func TestFenceIsNotPolled(t *testing.T) {
	for name, take := range map[string]func(*cluster, *machine, *storagev1alpha1.VolumeAttachment){
		"fenced":             func(c *cluster, _ *machine, a *storagev1alpha1.VolumeAttachment) { c.fence(a.Name, 7) },
		"granted to another": func(c *cluster, _ *machine, _ *storagev1alpha1.VolumeAttachment) { c.elsewhere() },
		"of a backup, anew":  func(c *cluster, _ *machine, a *storagev1alpha1.VolumeAttachment) { c.grant(c.get(a.Name), 3) },
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := shownUnderSeven(t)
			take(c, m, a)
			result, err := m.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
			if err != nil || result.RequeueAfter != 0 || c.get(a.Name).Status.DPU.Attached {
				t.Errorf("looks again after %s, %v", result.RequeueAfter, err)
			}
		})
	}
}

// TestFenceIsNotInterrupted: once the volume is being taken away, a word that it is to be ends nothing.
func TestFenceIsNotInterrupted(t *testing.T) {
	c, m, a := attached(t)
	m.watched = func(d provisioner.DPU) provisioner.DPU {
		return &withdrawing{DPU: d, before: func() { m.exposures.InterruptAll() }}
	}
	m.restartDriver()
	c.fence(a.Name, 1)
	c.must(m.pass(a.Name))
	if m.given(a.Name); len(m.shown()) != 0 {
		t.Errorf("it shows %v", m.shown())
	}
}

// TestFenceTellsSNAPOnce: each device of the volume is withdrawn, once, whichever of its attachments has it on
// record; those of others are not, and nothing is where none is on record.
func TestFenceTellsSNAPOnce(t *testing.T) {
	c, m, a := attached(t)
	c.volume("v2", corev1.ReadWriteOnce)
	c.grant(c.attachment("v2", "dpu-1"), 1)
	m.settle("dpu-1-v2")
	for name, device := range map[string]string{"second": "dev_second", "third": ""} {
		other := c.get(a.Name)
		other.Name, other.ResourceVersion, other.UID = name, "", types.UID(name)
		c.must(c.Create(t.Context(), other))
		c.must(c.setDPU(name, func(d *storagev1alpha1.VolumeAttachmentDPU) {
			*d = storagev1alpha1.VolumeAttachmentDPU{DeviceName: device, Provider: "nvidia", Incarnation: a.Status.DPU.Incarnation}
		}))
	}
	heard := m.listen()
	c.fence(a.Name, 1)
	c.must(m.pass(a.Name))
	m.given(a.Name)
	if got := heard.since(); !slices.Equal(got, []string{"withdraw dev_second", "withdraw dev_v1-pvc"}) {
		t.Errorf("SNAP was told %q", got)
	}
	if s := m.shown(); len(s) != 1 || !s["dev_v2-pvc"].Visible {
		t.Errorf("shown %v", s)
	}
}

// TestFenceOfNothingNeedsNoSNAP: an attachment of which nothing was ever made gives its receipt though SNAP
// does not answer.
func TestFenceOfNothingNeedsNoSNAP(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 1)
	c.fence(a.Name, 1)
	m.inject(map[string]any{"method": "nvme_subsystem_list", "drop": true, "count": -1})
	c.must(m.pass(a.Name))
	m.given(a.Name)
	m.clear()
}

// TestFenceByTheServersRecord: what the API server itself has on record is withdrawn, and drained, where the
// cache has another record of the same device.
func TestFenceByTheServersRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*storagev1alpha1.VolumeAttachmentDPU)
		calls  []string
		given  bool
		fails  bool
	}{
		"the same":              {change: func(*storagev1alpha1.VolumeAttachmentDPU) {}, calls: []string{"withdraw dev_v1-pvc"}, given: true},
		"none":                  {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { *d = storagev1alpha1.VolumeAttachmentDPU{} }, calls: []string{"withdraw dev_v1-pvc"}, given: true},
		"another device":        {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.DeviceName = "dev_x" }, calls: []string{"withdraw dev_v1-pvc", "withdraw dev_x"}, given: true},
		"another service":       {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Provider = "other" }, calls: []string{"withdraw dev_v1-pvc", "withdraw dev_v1-pvc", "withdraw dev_v1-pvc"}, fails: true},
		"an earlier run of it":  {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Incarnation = "earlier" }, calls: []string{"discard dev_v1-pvc", "withdraw dev_v1-pvc", "withdraw dev_v1-pvc"}},
		"what was on its way":   {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Undrained = "before" }, calls: []string{"withdraw dev_v1-pvc", "withdraw dev_v1-pvc"}},
		"what it may have kept": {change: func(d *storagev1alpha1.VolumeAttachmentDPU) { d.KeptEpoch = ptr.To(int64(1)) }, calls: []string{"discard dev_v1-pvc", "withdraw dev_v1-pvc", "withdraw dev_v1-pvc"}, given: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			stale := c.get(a.Name)
			heard := m.listen()
			c.must(c.setDPU(a.Name, tc.change))
			m.remembers(stale)
			p := newPass(stale.DeepCopy())
			err := m.fence.retire(t.Context(), p, 1)
			if waits(err) == tc.fails || (p.dpu.RetiredEpoch == 1) != tc.given {
				t.Errorf("it says %v, retired is %d", err, p.dpu.RetiredEpoch)
			}
			if got := heard.since(); !slices.Equal(got, tc.calls) {
				t.Errorf("SNAP was told %q, want %q", got, tc.calls)
			}
		})
	}
}

// TestFenceNeedsAllAnswers: a receipt needs the list of the attachments, and the API server's word of the
// attachment, which is none if that is gone.
func TestFenceNeedsAllAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(*cluster, *machine, *storagev1alpha1.VolumeAttachment)
		want  error
	}{
		"no list": {func(c *cluster, m *machine, _ *storagev1alpha1.VolumeAttachment) {
			m.o.Attachments.DPU.Client = unlisted{c.driver()}
		}, errNoAnswer},
		"no word": {func(_ *cluster, m *machine, _ *storagev1alpha1.VolumeAttachment) {
			m.reading().silent = &storagev1alpha1.VolumeAttachment{}
		}, errNoAnswer},
		"it is gone": {func(c *cluster, _ *machine, a *storagev1alpha1.VolumeAttachment) { c.strip(a.Name) }, provisioner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			p := c.passOver(a.Name)
			tc.fault(c, m, a)
			if err := m.fence.retire(t.Context(), p, 1); !errors.Is(err, tc.want) || p.dpu.RetiredEpoch != 0 {
				t.Errorf("a receipt: %v, %+v", err, p.dpu)
			}
		})
	}
}

// TestVolumeUID: the claim is of the Volume that owns it and has its name; no other owner counts.
func TestVolumeUID(t *testing.T) {
	owner := func(kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, Name: name, UID: uid}
	}
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		want   types.UID
	}{
		"none":                        {},
		"its Volume":                  {[]metav1.OwnerReference{owner("Volume", "v1", "u")}, "u"},
		"another Volume":              {[]metav1.OwnerReference{owner("Volume", "v2", "u")}, ""},
		"something else of the name":  {[]metav1.OwnerReference{owner("Other", "v1", "u")}, ""},
		"its Volume, after the other": {[]metav1.OwnerReference{owner("Other", "v1", "w"), owner("Volume", "v1", "u")}, "u"},
	} {
		claim := &moorv1alpha1.WriterClaim{ObjectMeta: metav1.ObjectMeta{Name: "v1", OwnerReferences: tc.owners}}
		if got := volumeUID(claim); got != tc.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if got := volumeUID(nil); got != "" {
		t.Errorf("without a claim: %q", got)
	}
}
