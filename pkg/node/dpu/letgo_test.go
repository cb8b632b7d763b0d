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

// TestDeletedWhileItIsShown: the pass that shows a device learns of the deletion by the
// answer to its status alone. The pass after it starts at once, by a cache that has the
// deletion and not yet what was written after it.
func TestDeletedWhileItIsShown(t *testing.T) {
	c, m, a := recorded(t)
	then := c.deletedBefore(a.Name)
	c.must(m.pass(a.Name))
	cached := then()
	if !c.get(a.Name).Status.DPU.Attached || cached.Status.DPU.Attached {
		t.Fatalf("not the order that is meant: %+v, and the cache has %+v", c.get(a.Name).Status.DPU, cached.Status.DPU)
	}
	c.wantHeld(a.Name)
	m.remembers(cached)
	for range 3 {
		c.must(m.pass(a.Name))
		if c.get(a.Name).Status.DPU.Attached {
			c.wantHeld(a.Name)
		}
	}
	m.o.Attachments.DPU.Client = c.driver()
	m.settle(a.Name)
	m.wantReceipt(a.Name, 1)
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

// TestSaidToBeShownWithoutTheFinalizer: the status of an attachment that is being
// deleted says that the host sees the device, and nothing of the DPU holds it. Every
// other DPU waits for the DPU's word, so it makes that true.
func TestSaidToBeShownWithoutTheFinalizer(t *testing.T) {
	t.Run("and it is shown", func(t *testing.T) {
		c, m, a := attached(t)
		c.held(a.Name)
		c.must(c.Delete(t.Context(), c.get(a.Name)))
		now := c.get(a.Name)
		controllerutil.RemoveFinalizer(now, storagev1alpha1.FinalizerDPUAttachment)
		c.must(c.Update(t.Context(), now))
		m.inject(map[string]any{"method": "nvme_controller_detach_ns", "count": -1, "error": map[string]any{"code": -5, "message": "no"}})
		if err := m.pass(a.Name); err == nil || writer.Released(c.get(a.Name), nil) {
			t.Fatalf("a receipt, and SNAP has not confirmed it: %v, %+v", err, c.get(a.Name).Status.DPU)
		}
		m.clear()
		m.settle(a.Name)
		m.wantReceipt(a.Name, 1)
	})
	t.Run("and it is not", func(t *testing.T) {
		c, m, a := attached(t)
		c.held(a.Name)
		was := c.get(a.Name).Status.DPU
		c.must(c.Delete(t.Context(), c.get(a.Name)))
		now := m.settle(a.Name)
		now.Status.DPU.Attached, now.Status.DPU.Epoch = was.Attached, was.Epoch
		c.must(c.Status().Update(t.Context(), now))
		m.restartDriver()
		m.settle(a.Name)
		m.wantReceipt(a.Name, 1)
	})
}
