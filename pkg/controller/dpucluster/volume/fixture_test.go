package volume_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/volume"
)

// fixture is a reconciler over a cluster in memory.
type fixture struct {
	*kubetest.Cluster
	t *testing.T
	r *volume.Reconciler
}

// newFixture has a policy gold with the vendors a and b, complete.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := kubetest.NewDPU(t)
	c.Add(kubetest.StorageVendor("a"), kubetest.StorageClass("a"), kubetest.StorageVendor("b"), kubetest.StorageClass("b"), kubetest.StoragePolicy("gold", "a", "b"))
	c.Clock.SetTime(time.Now()) // the fake client stamps deletions by the real time
	return &fixture{
		Cluster: c, t: t,
		r: &volume.Reconciler{DPU: c.Cluster, Clock: c.Clock, IntN: func(int) int { return 0 }, Recorder: c.Recorder},
	}
}

func (m *fixture) try(name string) (ctrl.Result, error) {
	return kube.Retrying(m.r).Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: name}})
}

// pass reconciles once.
func (m *fixture) pass(name string) ctrl.Result {
	m.t.Helper()
	result, err := m.try(name)
	if err != nil {
		m.t.Fatalf("reconcile %s: %v", name, err)
	}
	return result
}

// settle reconciles until a pass writes nothing; a lost write is repeated.
func (m *fixture) settle(name string) {
	m.t.Helper()
	for range 20 {
		before := m.Writes()
		_, err := m.try(name)
		if err != nil && !errors.Is(err, kubetest.ErrLost) {
			m.t.Fatalf("reconcile %s: %v", name, err)
		}
		if err == nil && m.Writes() == before {
			return
		}
	}
	m.t.Fatalf("%s does not settle", name)
}

func (m *fixture) volume(name string) *storagev1alpha1.Volume {
	m.t.Helper()
	v := &storagev1alpha1.Volume{}
	m.Get(v, name)
	return v
}

// bind plays the vendor: it makes a PV for the claim and binds the two.
func (m *fixture) bind(pvc, pv string, reclaim corev1.PersistentVolumeReclaimPolicy) {
	m.t.Helper()
	made := kubetest.VendorPV(pv, pvc, "a.csi", reclaim)
	made.Status.Phase = corev1.VolumeBound
	m.Add(made)
	m.bindTo(pvc, pv)
}

func (m *fixture) bindTo(pvc, pv string) {
	m.t.Helper()
	kubetest.Change(m.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: kubetest.DPUObject(pvc)}, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = pv
		c.Status.Phase = corev1.ClaimBound
	})
}

// available makes a volume and takes it to Available.
func (m *fixture) available(name string, reclaim corev1.PersistentVolumeReclaimPolicy) {
	m.t.Helper()
	m.Add(kubetest.Volume(name, "gold"))
	m.pass(name)
	m.bind(name+"-pvc", "pv-"+name, reclaim)
	m.settle(name)
	if s := m.volume(name).Status; s.State != storagev1alpha1.VolumeAvailable || s.Message != "" {
		m.t.Fatalf("volume %s: %+v", name, s)
	}
}
