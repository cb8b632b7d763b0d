package dpu

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestNoneLeft(t *testing.T) {
	vf := storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF}
	hotplug := storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF, HotplugFunction: true}
	counts := []provisioner.FunctionCount{{Type: provisioner.PF}, {Type: provisioner.VF, Total: 4}, {Type: provisioner.Hotplug, Total: 31}}
	user := func(f storagev1alpha1.FunctionTypeConfig, address string, going bool) storagev1alpha1.VolumeAttachment {
		var a storagev1alpha1.VolumeAttachment
		a.Spec.FunctionTypeConfig, a.Status.DPU.PCIDeviceAddress = f, address
		if now := metav1.Now(); going {
			a.DeletionTimestamp = &now
		}
		return a
	}
	for name, c := range map[string]struct {
		want   storagev1alpha1.FunctionTypeConfig
		counts []provisioner.FunctionCount
		users  []storagev1alpha1.VolumeAttachment
		none   bool
	}{
		"all taken":                {want: vf, counts: counts, users: []storagev1alpha1.VolumeAttachment{user(vf, "3b:00.2", false)}, none: true},
		"of those that plug in":    {want: hotplug, counts: counts, none: true},
		"the only one is taken":    {want: vf, counts: []provisioner.FunctionCount{{Type: provisioner.VF, Total: 1}}, none: true},
		"there are no such ones":   {want: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypePF}, counts: counts},
		"one is free":              {want: vf, counts: []provisioner.FunctionCount{{Type: provisioner.VF, Total: 4, Free: 1}}},
		"nothing is counted":       {want: vf},
		"one is on its way back":   {want: vf, counts: counts, users: []storagev1alpha1.VolumeAttachment{user(vf, "3b:00.2", true)}},
		"one of another kind is":   {want: vf, counts: counts, users: []storagev1alpha1.VolumeAttachment{user(hotplug, "30:00.0", true)}, none: true},
		"one goes that never came": {want: vf, counts: counts, users: []storagev1alpha1.VolumeAttachment{user(vf, "", true)}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := noneLeft(c.want, c.counts, c.users); got != c.none {
				t.Errorf("got %v, want %v", got, c.none)
			}
		})
	}
}

// TestExhausted: a DPU says that its functions have run out, but not while one is
// on its way back, and takes that one.
func TestExhausted(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	for i := range 5 { // the emulator has 4
		name := fmt.Sprintf("v%d", i)
		c.volume(name, corev1.ReadWriteOnce)
		c.grant(c.attachment(name, "dpu-1"), 1)
		if i < 4 && !m.settle("dpu-1-"+name).Status.DPU.Attached {
			t.Fatalf("%s is not attached", name)
		}
	}
	const last = "dpu-1-v4"
	look := func(exhausted bool) {
		t.Helper()
		var err error
		for range 2 { // the first makes the device
			err = m.pass(last)
		}
		now := c.get(last).Status
		if !errors.Is(err, provisioner.ErrExhausted) || now.DPU.Exhausted != exhausted || now.DPU.Attached || !strings.Contains(now.Message, "none of 4 vf functions is free") {
			t.Fatalf("error %v, status %+v; want exhausted %v", err, now, exhausted)
		}
	}
	look(true)
	c.must(c.Delete(t.Context(), c.get("dpu-1-v0")))
	m.vendor.fail["DeleteDevice"] = provisioner.ErrUnavailable
	if err := m.pass("dpu-1-v0"); err == nil {
		t.Fatal("the vendor's failure is success")
	}
	look(false)
	m.settle("dpu-1-v0")
	c.must(c.setDPU(last, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Exhausted = true })) // as of before one came free
	if now := m.settle(last).Status.DPU; !now.Attached || now.Exhausted {
		t.Fatalf("got %+v", now)
	}
}

// TestNoMemory: a SNAP service that has functions, and no memory for a device, has
// not run out of them: it is asked again.
func TestNoMemory(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 1)
	m.inject(map[string]any{"method": "nvme_namespace_create", "error": map[string]any{"code": -12, "message": "Cannot allocate memory"}, "count": -1})
	var err error
	for range 2 { // the first makes the device
		err = m.pass(a.Name)
	}
	if now := c.get(a.Name).Status; !errors.Is(err, provisioner.ErrExhausted) || now.DPU.Exhausted || now.DPU.Attached {
		t.Fatalf("error %v, status %+v", err, now)
	}
	m.clear()
	if now := m.settle(a.Name).Status.DPU; !now.Attached {
		t.Fatalf("got %+v", now)
	}
}
