package dpu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

var errNoAnswer = errors.New("the API server does not answer")

// reader reads from the API server itself, counts what is read of each kind, and has no answer about one.
type reader struct {
	client.Reader
	silent client.Object

	mu    sync.Mutex
	reads map[string]int
}

func (r *reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	kind := fmt.Sprintf("%T", o)
	r.mu.Lock()
	r.reads[kind]++
	r.mu.Unlock()
	if r.silent != nil && kind == fmt.Sprintf("%T", r.silent) {
		return errNoAnswer
	}
	return r.Reader.Get(ctx, key, o, opts...)
}

// reading has the driver read from the API server through a reader.
func (m *machine) reading() *reader {
	r := &reader{Reader: m.c.driver(), reads: map[string]int{}}
	m.o.Attachments.DPU.Live = r
	return r
}

// claims is how often WriterClaims were read.
func (r *reader) claims() int { return r.reads["*v1alpha1.WriterClaim"] }

// refuse has SNAP refuse to take a namespace away from the host.
func (m *machine) refuse() {
	m.t.Helper()
	m.inject(map[string]any{"method": "nvme_controller_detach_ns", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
}

// elsewhere has the claim of v1 granted to another DPU.
func (c *cluster) elsewhere() {
	c.t.Helper()
	c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-2", Attachment: "dpu-2-v1", Epoch: 2})
}

// passOver is a pass over an attachment of volume v1 that has found the volume.
func (c *cluster) passOver(name string) *pass {
	c.t.Helper()
	p := newPass(c.get(name))
	p.volume = &storagev1alpha1.Volume{}
	c.must(c.Get(c.t.Context(), client.ObjectKey{Namespace: ns, Name: "v1"}, p.volume))
	return p
}

// TestClaimIsReadTwice: a pass over what is shown reads the claim once to obey it, and once right before the
// exposure. One of a volume that needs none, or of a replica that nothing was ever granted to, reads none, so
// it does not wait for one.
func TestClaimIsReadTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		mode corev1.PersistentVolumeAccessMode
		role storagev1alpha1.Role
		want int
	}{
		"a single writer's":          {corev1.ReadWriteOnce, storagev1alpha1.RolePrimary, 2},
		"that of several writers":    {corev1.ReadWriteMany, storagev1alpha1.RolePrimary, 0},
		"a replica of one writer's":  {corev1.ReadWriteOnce, storagev1alpha1.RoleReplica, 0},
		"a replica of many writers'": {corev1.ReadWriteMany, storagev1alpha1.RoleReplica, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			c.volume("v1", tc.mode)
			a := c.attachment("v1", "dpu-1")
			c.role(a.Name, tc.role)
			r := m.reading()
			if tc.want > 0 {
				c.grant(a, 1)
			} else {
				r.silent = &moorv1alpha1.WriterClaim{}
			}
			now := m.settle(a.Name)
			if shown := tc.role == storagev1alpha1.RolePrimary; now.Status.DPU.Attached != shown || now.Status.DPU.PreEmulated == shown {
				t.Fatalf("got %+v", now.Status)
			}
			before := r.claims()
			if c.must(m.pass(a.Name)); r.claims()-before != tc.want {
				t.Errorf("the claim was read %d times, want %d", r.claims()-before, tc.want)
			}
			c.must(c.Delete(t.Context(), c.get(a.Name)))
			before = r.claims()
			if m.settle(a.Name); tc.want == 0 && r.claims() != before {
				t.Errorf("the claim was read %d times as it went", r.claims()-before)
			}
		})
	}
}

// TestNoAnswerAboutAnUnmarkedClaim: the attachment is restored without its epoch, and the claim cannot be
// read. The pass fails, and nothing is withdrawn for want of an answer.
func TestNoAnswerAboutAnUnmarkedClaim(t *testing.T) {
	c, m, a := attached(t)
	now := c.get(a.Name)
	now.Spec.Epoch = 0
	c.must(c.Update(t.Context(), now))
	r := m.reading()
	r.silent = &moorv1alpha1.WriterClaim{}
	if err := m.right.checkClaim(t.Context(), c.passOver(a.Name)); !errors.Is(err, errNoAnswer) {
		t.Errorf("the right is known: %v", err)
	}
	if err := m.pass(a.Name); !errors.Is(err, errNoAnswer) || !errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("it says %v", err)
	}
	if !m.shown()["dev_v1-pvc"].Visible || !c.get(a.Name).Status.DPU.Attached {
		t.Errorf("withdrawn: %+v", c.get(a.Name).Status)
	}
	r.silent = nil
	if now = m.settle(a.Name); m.shown()["dev_v1-pvc"].Visible || now.Status.DPU.Attached {
		t.Errorf("shown without an epoch: %+v", now.Status)
	}
}

// TestWarmReplicaNeedsNoClaim: one of a single writer is not shown whatever its warmth says, and no answer
// about the claim is waited for to take it away.
func TestWarmReplicaNeedsNoClaim(t *testing.T) {
	c, m, a := attached(t)
	now := c.get(a.Name)
	now.Spec.Epoch, now.Spec.Role, now.Spec.Warmth = 0, storagev1alpha1.RoleReplica, storagev1alpha1.WarmthAttached
	c.must(c.Update(t.Context(), now))
	m.reading().silent = &moorv1alpha1.WriterClaim{}
	if now = m.settle(a.Name); now.Status.DPU.Attached || !now.Status.DPU.PreEmulated || !m.shown()["dev_v1-pvc"].Hidden {
		t.Errorf("got %+v, %v", now.Status, m.shown())
	}
}

// TestLostRightIsSaidAtOnce: the pass that takes the volume away says so, with why it waits, whether a
// failure follows or not; and a SNAP that does not take it away is told with both.
func TestLostRightIsSaidAtOnce(t *testing.T) {
	c, m, a := attached(t)
	c.elsewhere()
	m.refuse()
	err := m.pass(a.Name)
	if err == nil || !strings.Contains(err.Error(), "dpu-2 holds it") || !strings.Contains(err.Error(), "could not be taken away from the host") {
		t.Errorf("it says %v", err)
	}
	if now := c.get(a.Name); !now.Status.DPU.Attached || now.Status.DPU.Epoch != 1 {
		t.Errorf("it is said to be withdrawn: %+v", now.Status.DPU)
	}
	m.clear()
	c.must(m.pass(a.Name))
	if now := c.get(a.Name); now.Status.DPU.Attached || now.Status.DPU.Epoch != 0 || m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("got %+v, %v", now.Status, m.shown())
	}
}

// TestLostRightOfWhatIsHidden: the host does not see the device any more, and the status says that it does:
// that is set right though nothing is to be withdrawn.
func TestLostRightOfWhatIsHidden(t *testing.T) {
	c, m, a := attached(t)
	e := m.shown()["dev_v1-pvc"]
	_, err := m.exposures.Service("nvidia").Expose(t.Context(), provisioner.ExposeSpec{
		Device: e.Device, FunctionType: provisioner.VF, PCIAddress: e.PCIAddress, NamespaceID: e.NamespaceID, UUID: e.UUID, Hidden: true,
	})
	c.must(err)
	c.elsewhere()
	made := m.calls("nvme_controller_create")
	c.must(m.pass(a.Name))
	if now := c.get(a.Name).Status.DPU; now.Attached || now.Epoch != 0 || !now.PreEmulated || !m.shown()["dev_v1-pvc"].Hidden || m.calls("nvme_controller_create") != made {
		t.Errorf("got %+v, %v", now, m.shown())
	}
}

// TestNothingMadeNeedsNoSNAP: an attachment of which nothing is made waits for its right, though SNAP does
// not answer.
func TestNothingMadeNeedsNoSNAP(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	m.vendor.fail["CreateDevice"] = provisioner.ErrUnavailable
	p := c.passOver(a.Name)
	m.inject(map[string]any{"method": "nvme_subsystem_list", "drop": true, "count": -1})
	if err := m.right.checkClaim(t.Context(), p); err != nil || !strings.Contains(p.refused, "no DPU holds it") {
		t.Errorf("it says %v, refused by %q", err, p.refused)
	}
	m.clear()
}

// TestRestoredClaimIsWithdrawn: the claim of a backup, which does not say which volume it is of, grants an
// epoch that is over here by the journal. What is shown is taken away, and not only not shown anew.
func TestRestoredClaimIsWithdrawn(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 7)
	m.settle(a.Name)
	c.grant(c.get(a.Name), 3)
	if now := m.settle(a.Name); now.Status.DPU.Attached || m.shown()["dev_v1-pvc"].Visible || !strings.Contains(now.Status.Message, "restored from a backup") {
		t.Errorf("shown: %+v, %v", now.Status, m.shown())
	}
}

// TestVolumeGoneWhileShown: a Volume that was removed by force is no reason to take the device away from the
// host, which may write; nor is anything made anew for it.
func TestVolumeGoneWhileShown(t *testing.T) {
	c, m, a := attached(t)
	v := &storagev1alpha1.Volume{}
	v.Name, v.Namespace = "v1", ns
	c.must(c.Delete(t.Context(), v))
	if now := m.settle(a.Name); !now.Status.DPU.Attached || !m.shown()["dev_v1-pvc"].Visible || !strings.Contains(now.Status.Message, "v1 does not exist in the DPU cluster any more") {
		t.Errorf("got %+v, %v", now.Status, m.shown())
	}
}
