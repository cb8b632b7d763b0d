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
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/attachment"
)

// fixture is a reconciler over a cluster in memory.
type fixture struct {
	*kubetest.Cluster
	t *testing.T
	r *attachment.Reconciler
}

// newFixture has the Available volume v with its bound claim, and the attachment
// x of it to the DPU d1, but no CSIDriver.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := kubetest.NewDPU(t)
	v := kubetest.Volume("v", "gold")
	v.Spec.StoragePolicyParameters = map[string]string{"tier": "gold", "lun": "of the policy"}
	v.Spec.Volume = storagev1alpha1.VolumeSource{ID: "Volume-v-1", StorageVendorName: "a", CSIReference: storagev1alpha1.CSIReference{
		CSIDriverName: "a.csi", PVCRef: &storagev1alpha1.ObjectRef{Name: "v-pvc"},
	}}
	v.Status.State = storagev1alpha1.VolumeAvailable
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject("v-pvc"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	c.Add(v, claim, kubetest.VolumeAttachment("x", "v", "d1"))
	c.Clock.SetTime(time.Now()) // the fake client stamps deletions by the real time
	return &fixture{Cluster: c, t: t, r: &attachment.Reconciler{DPU: c.Cluster, Clock: c.Clock}}
}

// newAttached is newFixture with a driver and x attached by the vendor.
func newAttached(t *testing.T) *fixture {
	t.Helper()
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	m.settle()
	m.vendor(func(s *storagev1.VolumeAttachmentStatus) { s.Attached = true })
	m.settle()
	if s := m.x().Status; !s.StorageAttached {
		t.Fatalf("not attached: %+v", s)
	}
	return m
}

func (m *fixture) try() (ctrl.Result, error) {
	return kube.Retrying(m.r).Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: "x"}})
}

// settle reconciles until a pass writes nothing; a lost write is repeated.
func (m *fixture) settle() {
	m.t.Helper()
	for range 20 {
		before := m.Writes()
		_, err := m.try()
		if err != nil && !errors.Is(err, kubetest.ErrLost) {
			m.t.Fatalf("reconcile: %v", err)
		}
		if err == nil && m.Writes() == before {
			return
		}
	}
	m.t.Fatal("does not settle")
}

func (m *fixture) x() *storagev1alpha1.VolumeAttachment {
	m.t.Helper()
	a := &storagev1alpha1.VolumeAttachment{}
	m.Get(a, "x")
	return a
}

func (m *fixture) exists() bool { return m.Has(&storagev1alpha1.VolumeAttachment{}, "x") }

func (m *fixture) asked() (*storagev1alpha1.SVVolumeAttachment, bool) {
	sv := &storagev1alpha1.SVVolumeAttachment{}
	return sv, m.Has(sv, "x")
}

// vendor plays the attacher: it holds the SVVolumeAttachment and answers.
func (m *fixture) vendor(answer func(*storagev1.VolumeAttachmentStatus)) {
	m.t.Helper()
	kubetest.Change(m.Cluster, &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject("x")}, func(sv *storagev1alpha1.SVVolumeAttachment) {
		sv.Finalizers = []string{"external-attacher/a-csi"}
		answer(&sv.Status)
	})
}

// vendorDone plays the attacher that has detached.
func (m *fixture) vendorDone() {
	m.t.Helper()
	kubetest.Change(m.Cluster, &storagev1alpha1.SVVolumeAttachment{ObjectMeta: kubetest.DPUObject("x")}, func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Finalizers = nil })
}

// edit plays everybody else who writes the attachment.
func (m *fixture) edit(change func(*storagev1alpha1.VolumeAttachment)) {
	m.t.Helper()
	kubetest.Change(m.Cluster, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("x")}, change)
}

// delete also sets the clock to the time of the deletion: the API server in
// memory stamps deletions by the machine's clock.
func (m *fixture) delete() {
	m.t.Helper()
	m.Remove(&storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("x")})
	if m.exists() {
		m.Clock.SetTime(m.x().DeletionTimestamp.Time)
	}
}

func (m *fixture) wantMessage(words string) {
	m.t.Helper()
	if s := m.x().Status; !strings.Contains(s.StorageMessage, words) {
		m.t.Errorf("message %q, want %q in it", s.StorageMessage, words)
	}
}

var no = ptr.To(false)
