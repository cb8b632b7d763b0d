package attacher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
)

func TestDriverAway(t *testing.T) {
	w := newFixture(t, volume(), attachment())
	w.mustReconcile()
	w.stop()
	w.Remove(w.get())
	if err := w.reconcile(); err == nil {
		t.Fatal("no error")
	}
	sv := w.get()
	if sv == nil || sv.Status.DetachError == nil || len(sv.Finalizers) != 1 {
		t.Fatalf("without the driver's word the object must stay: %+v", sv)
	}
}

func TestDriverLate(t *testing.T) {
	w := newFixture(t, volume(), attachment())
	w.driver.hang, w.r.Timeout = true, 50*time.Millisecond
	if err := w.reconcile(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if sv := w.get(); len(sv.Finalizers) != 1 {
		t.Fatal("a late driver leaves nothing to undo?")
	}
}

func TestDriverWithoutPublish(t *testing.T) {
	w := newFixture(t, volume(), attachment())
	w.r.Features = Features{}
	w.mustReconcile()
	sv := w.get()
	if !sv.Status.Attached || len(sv.Finalizers) != 0 {
		t.Fatalf("status %+v, finalizers %v", sv.Status, sv.Finalizers)
	}
	w.wantCalls(0, 0)
}

func TestFeatures(t *testing.T) {
	d := &fakeDriver{}
	c, _ := d.serve(t)
	if name, err := c.Name(t.Context()); err != nil || name != driverName {
		t.Fatalf("name %q, %v", name, err)
	}
	if f, err := c.Features(t.Context()); err != nil || f != (Features{}) {
		t.Fatalf("without a controller: %+v, %v", f, err)
	}
	d.caps = []csispec.ControllerServiceCapability_RPC_Type{
		csispec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csispec.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		csispec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if f, err := c.Features(t.Context()); err != nil || f != (Features{Publish: true, ReadOnly: true, SingleNodeMultiWriter: true}) {
		t.Fatalf("with everything: %+v, %v", f, err)
	}
	d.fences = true
	if f, err := c.Features(t.Context()); err != nil || !f.Fence {
		t.Fatalf("with epochs: %+v, %v", f, err)
	}
	d.caps = d.caps[1:]
	if f, err := c.Features(t.Context()); err != nil || f.Fence {
		t.Fatalf("one that does not publish has nothing to fence: %+v, %v", f, err)
	}
}

func TestConnectRefusesAddresses(t *testing.T) {
	for _, bad := range []string{"", "relative/csi.sock", "unix://" + strings.Repeat("/x", 60), "tcp://nowhere"} {
		if c, err := Connect(bad); err == nil {
			_ = c.Close()
			t.Errorf("address %q was accepted", bad)
		}
	}
}
