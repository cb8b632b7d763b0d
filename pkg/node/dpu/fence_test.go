package dpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func (c *cluster) fence(name string, epoch int64) *moorv1alpha1.WriterClaimStatus {
	c.t.Helper()
	a := c.get(name)
	s := &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: a.Spec.NodeName, Attachment: name, AttachmentUID: a.UID, Epoch: epoch}
	c.claim(a.VolumeName(), s)
	return s
}

// ready sets up a cluster with one replica that stands ready.
func ready(t *testing.T) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	c.role(c.attachment("v1", "dpu-1").Name, storagev1alpha1.RoleReplica)
	a := m.settle("dpu-1-v1")
	e := m.shown()["dev_v1-pvc"]
	want := storagev1alpha1.VolumeAttachmentDPU{
		PreEmulated: true, PCIDeviceAddress: e.PCIAddress, FuncVUID: e.VUID, DeviceName: "dev_v1-pvc",
		Provider: "nvidia", Incarnation: m.exposures.Incarnation("nvidia"),
		BdevAttrs: &storagev1alpha1.BdevAttrs{NVMeNsID: 1, NVMeUUID: e.UUID},
	}
	if diff := cmp.Diff(want, a.Status.DPU); diff != "" || !e.Hidden || e.Visible || e.PCIAddress == "" || a.Status.Message != "" {
		t.Fatalf("exposure %+v, message %q, status (-want +got):\n%s", e, a.Status.Message, diff)
	}
	if n := m.calls("nvme_controller_attach_ns"); n != 0 {
		t.Fatalf("a replica was visible %d times", n)
	}
	return c, m, a
}

// TestFence: the receipt is there after one pass, though neither vendor nor
// volume answers, and only then. A replica stands ready again after it, a
// primary does not; neither is shown under the epoch again.
func TestFence(t *testing.T) {
	for _, role := range []storagev1alpha1.Role{storagev1alpha1.RolePrimary, storagev1alpha1.RoleReplica} {
		t.Run(string(role), func(t *testing.T) {
			c, m, a := attached(t)
			c.role(a.Name, role)
			c.fence(a.Name, 1)
			c.must(os.Remove(m.pluginSocket()))
			m.inject(map[string]any{"method": "nvme_controller_detach_ns", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
			if err := m.pass(a.Name); err == nil {
				t.Fatal("SNAP's failure is success")
			}
			if now := c.get(a.Name); now.Status.DPU.RetiredEpoch != 0 || !m.shown()["dev_v1-pvc"].Visible {
				t.Fatalf("a receipt without a withdrawal: %+v", now.Status)
			}
			m.clear()
			c.must(m.pass(a.Name))
			now := c.get(a.Name)
			if now.Status.DPU.RetiredEpoch != 1 || now.Status.DPU.Attached || len(m.shown()) != 0 || !strings.Contains(now.Status.Message, "epoch 1 is over") {
				t.Fatalf("no receipt: %+v, %v", now.Status, m.shown())
			}
			c.must(os.WriteFile(m.pluginSocket(), nil, 0o600))
			now = m.settle(a.Name)
			isReplica := role == storagev1alpha1.RoleReplica
			if now.Status.DPU.PreEmulated != isReplica || (len(m.shown()) == 1) != isReplica {
				t.Fatalf("after the fence: %+v, %v", now.Status, m.shown())
			}
			c.role(a.Name, storagev1alpha1.RolePrimary)
			c.grant(a, 1)
			if now = m.settle(a.Name); now.Status.DPU.Attached || m.shown()["dev_v1-pvc"].Visible || !strings.Contains(now.Status.Message, "is over on DPU dpu-1") {
				t.Fatalf("shown under a retired epoch: %+v, %v", now.Status, m.shown())
			}
			c.grant(a, 2)
			now = m.settle(a.Name)
			want := *a.Status.DPU.DeepCopy()
			want.Epoch, want.RetiredEpoch = 2, 1
			if diff := cmp.Diff(want, now.Status.DPU); diff != "" {
				t.Fatalf("under a new epoch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFenceOfNothing: an attachment that was granted and never shown gives its
// receipt too; one of another holder gives none.
func TestFenceOfNothing(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	a.Status.StorageAttached = false
	c.must(c.Status().Update(t.Context(), a))
	c.grant(a, 4)
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "dpu-2", Attachment: a.Name, Epoch: 4})
	if now := m.settle(a.Name); now.Status.DPU.RetiredEpoch != 0 {
		t.Fatalf("a receipt for another DPU: %+v", now.Status)
	}
	c.fence(a.Name, 4)
	if now := m.settle(a.Name); now.Status.DPU.RetiredEpoch != 4 || now.Status.DPU.Attached {
		t.Fatalf("got %+v", now.Status)
	}
}

// TestFenceBehindTheCache: after a restart the cache does not know yet which
// device was shown. No receipt without that device's withdrawal.
func TestFenceBehindTheCache(t *testing.T) {
	c, m, a := attached(t)
	c.fence(a.Name, 1)
	stale := c.get(a.Name)
	stale.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{}
	p := newPass(stale)
	if err := m.fence.retire(t.Context(), p, 1); !waits(err) {
		t.Fatal(err)
	}
	if len(m.shown()) != 0 || p.dpu.RetiredEpoch != 1 {
		// The list of attachments is the fake server's, so not stale.
		t.Fatalf("got %+v, %v", p.dpu, m.shown())
	}
	lost := errors.New("no route")
	reads := 0
	c.onRead = func() error {
		if reads++; reads == 2 { // the list, and then the live word
			return lost
		}
		return nil
	}
	p = newPass(stale)
	if err := m.fence.retire(t.Context(), p, 1); !errors.Is(err, lost) || p.dpu.RetiredEpoch != 0 {
		t.Fatalf("a receipt without the API server's word: %v, %+v", err, p.dpu)
	}
}

// TestFenceWhileDeleting: the vendor hangs; the receipt does not wait for it.
func TestFenceWhileDeleting(t *testing.T) {
	c, m, a := attached(t)
	c.fence(a.Name, 1)
	c.must(c.Delete(t.Context(), a))
	m.vendor.fail["DeleteDevice"] = provisioner.ErrUnavailable
	seen := false
	c.onWrite = func(_ string, effect func() error) error {
		err := effect()
		now := c.get(a.Name)
		if m.vendor.pending("DeleteDevice") && now.Status.DPU.RetiredEpoch == 1 && !now.Status.DPU.Attached {
			seen = len(m.shown()) == 0
		}
		return err
	}
	if err := m.pass(a.Name); err == nil {
		t.Fatal("the vendor's failure is success")
	}
	if !seen {
		t.Fatal("the receipt waited for the vendor")
	}
}

// TestFenceEndsAPass: a pass that hangs at the vendor is ended by the word that
// the volume is being fenced; the next one withdraws.
func TestFenceEndsAPass(t *testing.T) {
	c, m, a := attached(t)
	hanging := make(chan context.Context, 1)
	m.vendor.hang = func(ctx context.Context) error {
		hanging <- ctx
		<-ctx.Done()
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() { done <- m.pass(a.Name) }()
	under := <-hanging
	// Words about another DPU's claim, or another phase, end nothing.
	other := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "dpu-2"}}
	other.Name = "v1"
	m.attachmentsOf(t.Context(), other)
	if err := under.Err(); err != nil {
		t.Fatalf("ended: %v", err)
	}
	m.vendor.hang = nil
	claim := &moorv1alpha1.WriterClaim{Status: c.fence(a.Name, 1)}
	claim.Name = "v1"
	if requests := m.attachmentsOf(t.Context(), claim); len(requests) != 1 {
		t.Fatalf("looks at %v", requests)
	}
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the pass goes on")
	}
	c.must(m.pass(a.Name))
	if now := c.get(a.Name); now.Status.DPU.RetiredEpoch != 1 || len(m.shown()) != 0 {
		t.Fatalf("got %+v, %v", now.Status, m.shown())
	}
}

// revokedAnew is dpu-1 that was silent while the volume was taken from it by
// the storage's word, and its attachment went: it still shows the volume, and a
// new attachment comes. Another volume is shown beside it.
func revokedAnew(t *testing.T) (*cluster, *machine, string) {
	t.Helper()
	c, m, old := attached(t)
	c.volume("v2", corev1.ReadWriteOnce)
	c.grant(c.attachment("v2", "dpu-1"), 1)
	m.settle("dpu-1-v2")
	old.Finalizers = nil
	c.must(c.Update(t.Context(), old))
	c.must(c.Delete(t.Context(), old))
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{
		Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-2", Attachment: "dpu-2-v1", Epoch: 2,
		Revoked: []moorv1alpha1.Revoked{{DPU: "dpu-1", Epoch: 1}},
	})
	a := c.attachment("v1", "dpu-1")
	a.Status.StorageAttached = false
	c.must(c.Status().Update(t.Context(), a))
	a.Spec.Role = storagev1alpha1.RoleReplica
	a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	c.must(c.Update(t.Context(), a))
	if !m.shown()["dev_v1-pvc"].Visible || !m.shown()["dev_v2-pvc"].Visible {
		t.Fatalf("shown %+v", m.shown())
	}
	return c, m, a.Name
}

// TestClearsUpBeforeTheStorageOpens: what is left of the old attachment goes
// before the DPU says that it shows nothing, and nothing else goes.
func TestClearsUpBeforeTheStorageOpens(t *testing.T) {
	for name, lists := range map[string]bool{"the plugin lists": true, "the plugin does not list": false} {
		t.Run(name, func(t *testing.T) {
			c, m, a := revokedAnew(t)
			if !lists {
				m.vendor.fail["ListDevices"] = provisioner.ErrUnavailable
			}
			m.inject(map[string]any{"method": "nvme_controller_detach_ns", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
			if err := m.pass(a); err == nil || c.get(a).Status.DPU.RetiredEpoch != 0 {
				t.Fatalf("says that it has cleared up: %v, %+v", err, c.get(a).Status)
			}
			m.clear()
			c.must(m.pass(a))
			if now := c.get(a).Status.DPU; now.RetiredEpoch != 1 || now.Attached {
				t.Fatalf("does not say that it has cleared up: %+v", now)
			}
			if s := m.shown(); s["dev_v1-pvc"].Visible || !s["dev_v2-pvc"].Visible {
				t.Fatalf("shown %+v", s)
			}
			m.settle(a)
			if s := m.shown(); len(s) != 1 {
				t.Errorf("shown %+v", s)
			}
		})
	}
}

// TestSilentServiceClearsNothing: one SNAP service that does not answer may be
// the one that shows the volume.
func TestSilentServiceClearsNothing(t *testing.T) {
	c, m, a := revokedAnew(t)
	m.inject(map[string]any{"method": "nvme_subsystem_list", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
	if err := m.pass(a); err == nil || c.get(a).Status.DPU.RetiredEpoch != 0 {
		t.Fatalf("says that it has cleared up: %v, %+v", err, c.get(a).Status)
	}
}

// TestClaimWakesPrimaries and no replicas, which hear of their promotion by themselves; but for
// a claim that was lost, and waits for the word of this DPU about what is a replica again since
// the DPU cluster was restored.
func TestClaimWakesPrimaries(t *testing.T) {
	granted := moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-1", Attachment: "dpu-1-v1", Epoch: 2}
	lost := func(dpu string) moorv1alpha1.WriterClaimStatus {
		return moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimLost, Holder: dpu, Epoch: 2, Lost: []moorv1alpha1.LostHolder{{DPU: dpu, Epoch: 2}}}
	}
	for _, tc := range []struct {
		name   string
		role   storagev1alpha1.Role
		status moorv1alpha1.WriterClaimStatus
		want   int
	}{
		{"a primary, granted", storagev1alpha1.RolePrimary, granted, 1},
		{"a replica, granted", storagev1alpha1.RoleReplica, granted, 0},
		{"a primary, lost", storagev1alpha1.RolePrimary, lost("dpu-1"), 1},
		{"a replica, lost", storagev1alpha1.RoleReplica, lost("dpu-1"), 1},
		{"a replica, lost by another DPU", storagev1alpha1.RoleReplica, lost("dpu-2"), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, m, a := attached(t)
			c.role(a.Name, tc.role)
			claim := &moorv1alpha1.WriterClaim{Status: &tc.status}
			claim.Name = "v1"
			for i := range tc.status.Lost {
				tc.status.Lost[i].Attachment, tc.status.Lost[i].AttachmentUID = a.Name, a.UID
			}
			if got := len(m.attachmentsOf(t.Context(), claim)); got != tc.want {
				t.Errorf("wakes %d, want %d", got, tc.want)
			}
		})
	}
}

// TestFenceOfAnEarlierAttachment: what is being taken from an attachment that is gone is
// not retired on the one that was made in its place: what that one has not on record may
// be shown.
func TestFenceOfAnEarlierAttachment(t *testing.T) {
	c, m, a := attached(t)
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "dpu-1", Attachment: a.Name, AttachmentUID: "earlier", Epoch: 1})
	if now := m.settle(a.Name); now.Status.DPU.RetiredEpoch != 0 || now.Status.DPU.Attached {
		t.Errorf("the DPU says %+v", now.Status.DPU)
	}
}

// TestClearsUpForALostClaim: by a claim that was lost the DPU withdraws what it shows of the
// volume, also what the attachment has no record of, and says so; goes it, or stays.
func TestClearsUpForALostClaim(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleting %v", deleting), func(t *testing.T) {
			c, m, a := attached(t)
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{} // its record is lost as well
			c.must(c.Status().Update(t.Context(), a))
			c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimLost, Holder: "dpu-1", Epoch: 3, Lost: []moorv1alpha1.LostHolder{{DPU: "dpu-1", Attachment: a.Name, AttachmentUID: a.UID, Epoch: 3}}})
			if deleting {
				held := c.get(a.Name)
				held.Finalizers = append(held.Finalizers, "example.com/held")
				c.must(c.Update(t.Context(), held))
				c.must(c.Delete(t.Context(), held))
			}
			now, begin := c.get(a.Name), m.clock.Now()
			for i := 0; i < 5 && now.Status.DPU.ClearedEpoch == 0; i++ {
				if m.clock.Since(begin) < drainTime && i > 0 {
					if len(m.shown()) != 0 || now.Status.DPU.Undrained == "" {
						t.Errorf("while requests may be on their way, the DPU says %+v, and shows %v", now.Status.DPU, m.shown())
					}
					m.clock.Step(drainTime)
				}
				c.must(m.pass(a.Name))
				now = c.get(a.Name)
			}
			if m.clock.Since(begin) < drainTime {
				t.Error("nothing is on record of who showed it, and what was sent was not waited for")
			}
			if now.Status.DPU.ClearedEpoch != 3 || now.Status.DPU.RetiredEpoch < 1 || now.Status.DPU.Attached || len(m.shown()) != 0 {
				t.Errorf("the DPU says %+v, and shows %v", now, m.shown())
			}
		})
	}
}
