package dpu

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/writer"
)

// held has the attachment kept by snap-host-controller while it is being deleted.
func (c *cluster) held(name string) {
	c.t.Helper()
	a := c.get(name)
	controllerutil.AddFinalizer(a, storagev1alpha1.FinalizerWriterClaim)
	c.must(c.Update(c.t.Context(), a))
}

// wantReceipt fails unless the DPU has let go of the attachment for good, and what
// stands there proves it.
func (m *machine) wantReceipt(name string, epoch int64) {
	m.t.Helper()
	now := m.c.get(name)
	if !writer.Released(now, nil) || controllerutil.ContainsFinalizer(now, storagev1alpha1.FinalizerDPUAttachment) {
		m.t.Errorf("not released: finalizers %v, %+v", now.Finalizers, now.Status.DPU)
	}
	if dpu := now.Status.DPU; dpu.RetiredEpoch != epoch || dpu.Epoch != 0 {
		m.t.Errorf("the receipt is %+v, want retired epoch %d", dpu, epoch)
	}
	if len(m.shown()) != 0 {
		m.t.Errorf("it shows %+v", m.shown())
	}
}

// deletedBefore has the attachment deleted right before the next write of a status,
// and returns what there was of it then once that was done.
func (c *cluster) deletedBefore(name string) func() *storagev1alpha1.VolumeAttachment {
	var then *storagev1alpha1.VolumeAttachment
	c.onWrite = func(what string, effect func() error) error {
		if what == "status" && then == nil {
			c.must(c.Delete(c.t.Context(), c.get(name)))
			then = c.get(name)
		}
		return effect()
	}
	return func() *storagev1alpha1.VolumeAttachment {
		c.t.Helper()
		c.onWrite = nil
		if then == nil {
			c.t.Fatal("no status was written, this tests nothing")
		}
		return then
	}
}

// wantHeld fails if the DPU has let go of the attachment.
func (c *cluster) wantHeld(name string) {
	c.t.Helper()
	if now := c.get(name); !controllerutil.ContainsFinalizer(now, storagev1alpha1.FinalizerDPUAttachment) {
		c.t.Fatalf("let go: %+v", now.Status.DPU)
	}
}

// recorded sets up a DPU with a device that is on record, and may be shown.
func recorded(t *testing.T) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.held(a.Name)
	c.grant(a, 1)
	c.must(m.pass(a.Name))
	return c, m, a
}

// TestDeletedWhileItWaits: a device is shown, and that could not be written. The pass
// that is under way when the attachment is deleted takes nothing away, so it lets
// nothing go: without the finalizer the status, which says that nothing is shown, would
// be a receipt.
func TestDeletedWhileItWaits(t *testing.T) {
	c, m, a := recorded(t)
	c.onWrite = func(string, func() error) error { return errCrash }
	if err := m.pass(a.Name); err == nil || !m.shown()["dev_v1-pvc"].Visible || c.get(a.Name).Status.DPU.Attached {
		t.Fatalf("not the order that is meant: %v, %+v", err, c.get(a.Name).Status.DPU)
	}
	c.onWrite = nil
	now := c.get(a.Name)
	now.Status.StorageAttached = false
	c.must(c.Status().Update(t.Context(), now))
	then := c.deletedBefore(a.Name)
	c.must(m.pass(a.Name))
	then()
	c.wantHeld(a.Name)
	m.settle(a.Name)
	m.wantReceipt(a.Name, 1)
}
