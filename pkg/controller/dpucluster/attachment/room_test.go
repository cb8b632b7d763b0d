package attachment_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/attachment"
	kit "github.com/moor-storage/moor/pkg/controller/dpucluster/dpuclustertest"
)

// room is a reconciler over a cluster in memory.
type room struct {
	*kit.Cluster
	t     *testing.T
	r     *attachment.Reconciler
	clock *clocktesting.FakePassiveClock
}

// newRoom has the Available volume v with its bound claim, and the attachment
// x of it to the DPU d1, but no CSIDriver.
func newRoom(t *testing.T) *room {
	t.Helper()
	c := kit.NewCluster(t)
	v := kit.Volume("v", "gold")
	v.Spec.StoragePolicyParameters = map[string]string{"tier": "gold", "lun": "of the policy"}
	v.Spec.Volume = storagev1alpha1.VolumeSource{ID: "uid-v", StorageVendorName: "a", CSIReference: storagev1alpha1.CSIReference{
		CSIDriverName: "a.csi", PVCRef: &storagev1alpha1.ObjectRef{Name: "v-pvc"},
	}}
	v.Status.State = storagev1alpha1.VolumeAvailable
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: kit.Meta("v-pvc"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	c.Add(v, claim, kit.Attachment("x", "v", "d1"))
	clock := clocktesting.NewFakePassiveClock(time.Now())
	c.Now = clock.Now
	return &room{Cluster: c, t: t, clock: clock, r: &attachment.Reconciler{DPU: kube.Cluster{Client: c.Client, Live: c.Live}, Clock: clock}}
}

// newAttached is newRoom with a driver and x attached by the vendor.
func newAttached(t *testing.T) *room {
	t.Helper()
	m := newRoom(t)
	m.Add(kit.CSIDriver("a", nil))
	m.settle()
	m.vendor(func(s *storagev1.VolumeAttachmentStatus) { s.Attached = true })
	m.settle()
	if s := m.x().Status; !s.StorageAttached {
		t.Fatalf("not attached: %+v", s)
	}
	return m
}

func (m *room) try() (ctrl.Result, error) {
	return kube.Retrying(m.r).Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kit.Namespace, Name: "x"}})
}

// settle reconciles until a pass writes nothing; a lost write is repeated.
func (m *room) settle() {
	m.t.Helper()
	for range 20 {
		before := m.Writes()
		_, err := m.try()
		if err != nil && !errors.Is(err, kit.ErrLost) {
			m.t.Fatalf("reconcile: %v", err)
		}
		if err == nil && m.Writes() == before {
			return
		}
	}
	m.t.Fatal("does not settle")
}

func (m *room) x() *storagev1alpha1.VolumeAttachment {
	m.t.Helper()
	a := &storagev1alpha1.VolumeAttachment{}
	m.Get(a, "x")
	return a
}

func (m *room) exists() bool { return m.Has(&storagev1alpha1.VolumeAttachment{}, "x") }

func (m *room) asked() (*storagev1alpha1.SVVolumeAttachment, bool) {
	sv := &storagev1alpha1.SVVolumeAttachment{}
	return sv, m.Has(sv, "x")
}

// vendor plays the attacher: it holds the SVVolumeAttachment and answers.
func (m *room) vendor(answer func(*storagev1.VolumeAttachmentStatus)) {
	m.t.Helper()
	kit.Change(m.Cluster, &storagev1alpha1.SVVolumeAttachment{}, "x", func(sv *storagev1alpha1.SVVolumeAttachment) {
		sv.Finalizers = []string{"external-attacher/a-csi"}
		answer(&sv.Status)
	})
}

// vendorDone plays the attacher that has detached.
func (m *room) vendorDone() {
	m.t.Helper()
	kit.Change(m.Cluster, &storagev1alpha1.SVVolumeAttachment{}, "x", func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Finalizers = nil })
}

// edit plays everybody else who writes the attachment.
func (m *room) edit(change func(*storagev1alpha1.VolumeAttachment)) {
	m.t.Helper()
	kit.Change(m.Cluster, &storagev1alpha1.VolumeAttachment{}, "x", change)
}

// delete also sets the clock to the time of the deletion: the API server in
// memory stamps deletions by the machine's clock.
func (m *room) delete() {
	m.t.Helper()
	m.Remove(&storagev1alpha1.VolumeAttachment{ObjectMeta: kit.Meta("x")})
	if m.exists() {
		m.clock.SetTime(m.x().DeletionTimestamp.Time)
	}
}

func (m *room) wantMessage(words string) {
	m.t.Helper()
	if s := m.x().Status; !strings.Contains(s.StorageMessage, words) {
		m.t.Errorf("message %q, want %q in it", s.StorageMessage, words)
	}
}

var no = ptr.To(false)
