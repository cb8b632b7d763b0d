package dpu

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// attached sets up a cluster with one granted, attached volume.
func attached(t *testing.T) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	c.grant(c.attachment("v1", "dpu-1"), 1)
	a := m.settle("dpu-1-v1")
	if !a.Status.DPU.Attached || a.Status.Message != "" {
		t.Fatalf("not attached: %+v", a.Status)
	}
	return c, m, a
}

func TestLife(t *testing.T) {
	c, m, a := attached(t)
	e := m.shown()["dev_v1-pvc"]
	want := storagev1alpha1.VolumeAttachmentDPU{
		Attached: true, PCIDeviceAddress: e.PCIAddress, FuncVUID: e.VUID, DeviceName: "dev_v1-pvc", Epoch: 1,
		Provider: "nvidia", Incarnation: m.exposures.Incarnation("nvidia"),
		BdevAttrs: &storagev1alpha1.BdevAttrs{NVMeNsID: 1, NVMeUUID: e.UUID},
	}
	if diff := cmp.Diff(want, a.Status.DPU); diff != "" || !e.Visible || e.PCIAddress == "" || e.VUID == "" {
		t.Fatalf("status (-want +got):\n%s", diff)
	}
	if !controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerDPUAttachment) {
		t.Fatal("no finalizer")
	}
	spec := provisioner.OpenSpec{
		VolumeID: "v1-pvc", Mode: provisioner.Block, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
		PublishContext: map[string]string{"published": "yes", "nv-volumeName": "v1", "nv-volumeAttachmentName": "dpu-1-v1"},
		VolumeContext:  map[string]string{"file": "v1"},
		Parameters:     map[string]string{"policy": "p", "num_queues": "2", "color": "red"},
	}
	if diff := cmp.Diff([]provisioner.OpenSpec{spec}, m.vendor.opened); diff != "" {
		t.Fatalf("CreateDevice (-want +got):\n%s", diff)
	}
	c.must(c.Delete(t.Context(), a))
	if left := m.settle(a.Name); left != nil {
		t.Fatalf("still there: %+v", left)
	}
	m.wantEmpty()
}

// TestReceipt: what fence reads as the DPU's receipt is there only when the
// host sees nothing any more.
func TestReceipt(t *testing.T) {
	c, m, a := attached(t)
	a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerWriterClaim)
	c.must(c.Update(t.Context(), a))
	c.must(c.Delete(t.Context(), a))
	m.vendor.fail["DeleteDevice"] = provisioner.ErrUnavailable
	if err := m.pass(a.Name); err == nil {
		t.Fatal("the vendor's failure is success")
	}
	now := c.get(a.Name)
	if len(m.shown()) != 0 || now.Status.DPU.Attached || !controllerutil.ContainsFinalizer(now, storagev1alpha1.FinalizerDPUAttachment) {
		t.Fatalf("with the vendor failing: shown %v, %+v", m.shown(), now)
	}
	m.settle(a.Name)
	now = c.get(a.Name)
	if now == nil || !slices.Equal(now.Finalizers, []string{storagev1alpha1.FinalizerWriterClaim}) || now.Status.DPU.Attached {
		t.Fatalf("got %+v", now)
	}
	m.wantEmpty()
}

func TestOthersAreLeftAlone(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteMany)
	before := c.get(c.attachment("v1", "dpu-2").Name)
	if err := m.pass(before.Name); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, c.get(before.Name)); diff != "" {
		t.Fatalf("changed:\n%s", diff)
	}
	m.wantEmpty()
}

func TestWaits(t *testing.T) {
	cases := map[string]struct {
		prepare func(c *cluster, m *machine)
		words   []string
		fails   error
	}{
		"storage": {func(c *cluster, _ *machine) {
			a := c.attachment("v1", "dpu-1")
			a.Status.StorageAttached = false
			c.must(c.Status().Update(c.t.Context(), a))
		}, []string{"snap-controller", "dpu-1", "v1"}, nil},
		"volume": {func(c *cluster, _ *machine) { c.attachment("gone", "dpu-1") }, []string{"gone does not exist"}, nil},
		"claim":  {func(c *cluster, _ *machine) { c.attachment("v1", "dpu-1") }, []string{"snap-host-controller", "v1"}, nil},
		"other holder": {func(c *cluster, _ *machine) {
			c.grant(c.attachment("v1", "dpu-2"), 1)
			c.attachment("v1", "dpu-1")
		}, []string{"single writer", "dpu-2 holds it"}, nil},
		"plugin": {func(c *cluster, m *machine) {
			c.grant(c.attachment("v1", "dpu-1"), 1)
			c.must(os.Remove(m.pluginSocket()))
		}, []string{"vendor plugin local on DPU dpu-1 does not answer at", "is its pod running?"}, provisioner.ErrUnavailable},
		"plugin starting": {func(c *cluster, m *machine) {
			c.grant(c.attachment("v1", "dpu-1"), 1)
			m.vendor.fail["Probe"] = provisioner.ErrUnavailable
		}, []string{"vendor plugin local on DPU dpu-1"}, provisioner.ErrUnavailable},
		"block": {func(c *cluster, m *machine) {
			c.grant(c.attachment("v1", "dpu-1"), 1)
			m.vendor.can = vendorplugin.Capabilities{Filesystem: true}
		}, []string{"makes no devices of volume mode Block"}, provisioner.ErrPrecondition},
		"vendor": {func(c *cluster, _ *machine) {
			v := c.volume("v2", corev1.ReadWriteMany)
			v.Spec.Volume.StorageVendorPluginName = ""
			c.must(c.Update(c.t.Context(), v))
			c.attachment("v2", "dpu-1")
		}, []string{"choose a vendor for volume v2"}, nil},
		"SNAP": {func(c *cluster, m *machine) {
			a := c.attachment("v1", "dpu-1")
			c.grant(a, 1)
			c.must(m.pass(a.Name))
			m.inject(map[string]any{"method": "nvme_subsystem_list", "drop": true, "count": -1})
		}, []string{"SNAP service nvidia on DPU dpu-1"}, provisioner.ErrUnavailable},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			c.volume("v1", corev1.ReadWriteOnce)
			test.prepare(c, m)
			var all storagev1alpha1.VolumeAttachmentList
			c.must(c.List(t.Context(), &all, client.MatchingFields{"spec.nodeName": "dpu-1"}))
			if err := m.pass(all.Items[0].Name); !errors.Is(err, test.fails) || (test.fails == nil && err != nil) {
				t.Fatalf("got %v, want %v", err, test.fails)
			}
			now := c.get(all.Items[0].Name)
			for _, word := range test.words {
				if !strings.Contains(now.Status.Message, word) {
					t.Errorf("message %q does not say %q", now.Status.Message, word)
				}
			}
			m.clear()
			if now.Status.DPU.Attached || len(m.shown()) != 0 {
				t.Fatalf("shown all the same: %+v, %v", now.Status, m.shown())
			}
		})
	}
}

func TestSharedVolumeNeedsNoClaim(t *testing.T) {
	c := newCluster(t)
	c.volume("v1", corev1.ReadWriteMany)
	for _, node := range []string{"dpu-1", "dpu-2"} {
		m := newMachine(t, c, node)
		if a := m.settle(c.attachment("v1", node).Name); !a.Status.DPU.Attached {
			t.Fatalf("%s: %+v", node, a.Status)
		}
	}
}

func TestClaimLost(t *testing.T) {
	cases := map[string]*moorv1alpha1.WriterClaimStatus{
		"fencing":        {Phase: moorv1alpha1.ClaimFencing, Holder: "dpu-1", Attachment: "dpu-1-v1", Epoch: 1},
		"free":           {Phase: moorv1alpha1.ClaimFree, Epoch: 1},
		"another DPU":    {Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-2", Attachment: "dpu-2-v1", Epoch: 2},
		"another epoch":  {Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-1", Attachment: "dpu-1-v1", Epoch: 2},
		"made anew":      {Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-1", Attachment: "dpu-1-v1", AttachmentUID: "earlier", Epoch: 1},
		"another object": {Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-1", Attachment: "dpu-1-v1-b", Epoch: 1},
	}
	for name, claim := range cases {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			c.claim("v1", claim)
			// The vendor has nothing to say in it.
			c.must(os.Remove(m.pluginSocket()))
			fenced := claim.Phase == moorv1alpha1.ClaimFencing
			if err := m.pass(a.Name); fenced != (err == nil) || (!fenced && !errors.Is(err, provisioner.ErrUnavailable)) {
				t.Fatal(err)
			}
			now := c.get(a.Name)
			if fenced && now.Status.DPU.RetiredEpoch != claim.Epoch {
				t.Fatalf("no receipt: %+v", now.Status)
			}
			if len(m.shown()) != 0 || now.Status.DPU.Attached || now.Status.DPU.Epoch != 0 {
				t.Fatalf("still shown: %+v, %v", now.Status, m.shown())
			}
			c.must(os.WriteFile(m.pluginSocket(), nil, 0o600))
			if now = m.settle(a.Name); !strings.Contains(now.Status.Message, "v1") || now.Status.DPU.Attached {
				t.Fatalf("message %q", now.Status.Message)
			}
			c.grant(now, 7)
			now = m.settle(a.Name)
			a.Status.DPU.Epoch = 7
			if fenced {
				a.Status.DPU.RetiredEpoch = claim.Epoch
			}
			if diff := cmp.Diff(a.Status.DPU, now.Status.DPU); diff != "" {
				t.Fatalf("after a new grant (-before +now):\n%s", diff)
			}
		})
	}
}

// TestNoAnswerAboutTheClaim: without an answer of the API server nothing is
// exposed, and nothing that is exposed under a claim is withdrawn.
func TestNoAnswerAboutTheClaim(t *testing.T) {
	c, m, a := attached(t)
	lost := errors.New("no route")
	reads := 0
	// The first read is the attachment, from the cache.
	c.onRead = func() error {
		if reads++; reads > 1 {
			return lost
		}
		return nil
	}
	if err := m.pass(a.Name); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	c.onRead = nil
	if len(m.shown()) != 1 || !c.get(a.Name).Status.DPU.Attached {
		t.Fatalf("withdrawn for want of an answer: %v", m.shown())
	}
}

// TestStaleCache: the cache shows an attachment that stands and is granted; it
// is being deleted. Nothing may be exposed, and nothing is written: the change
// comes by the watch.
func TestStaleCache(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, c, "dpu-1")
	c.volume("v1", corev1.ReadWriteOnce)
	a := c.attachment("v1", "dpu-1")
	c.grant(a, 1)
	c.must(m.pass(a.Name)) // makes and records the device
	stale := c.get(a.Name)
	c.must(c.Delete(t.Context(), stale.DeepCopy()))
	p := newPass(stale)
	err := m.attach(t.Context(), p)
	if !waits(err) || len(m.shown()) != 0 {
		t.Fatalf("got %v, shown %v", err, m.shown())
	}
	was := c.get(a.Name).ResourceVersion
	if result, err := m.finish(t.Context(), p, err); err != nil || result.RequeueAfter == 0 || c.get(a.Name).ResourceVersion != was {
		t.Fatalf("got %+v, %v, or a write about what the next pass sees by itself", result, err)
	}
}

func TestVolumeGone(t *testing.T) {
	for name, list := range map[string]bool{"plugin lists": true, "plugin does not list": false} {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			m.vendor.can.List = list
			m.restartDriver()
			v := &storagev1alpha1.Volume{}
			v.Name, v.Namespace = "v1", ns
			c.must(c.Delete(t.Context(), v))
			c.must(c.Delete(t.Context(), a))
			if left := m.settle(a.Name); left != nil {
				t.Fatalf("still there: %+v", left)
			}
			m.wantEmpty()
		})
	}
}

func TestTwoAttachmentsOfOneVolume(t *testing.T) {
	c, m, a := attached(t)
	b := a.DeepCopy()
	b.ObjectMeta = *(&storagev1alpha1.VolumeAttachment{}).ObjectMeta.DeepCopy()
	b.Name, b.Namespace, b.Spec.Epoch = "second", ns, 0
	b.Status = storagev1alpha1.VolumeAttachmentStatus{}
	c.must(c.Create(t.Context(), b))
	b.Status.StorageAttached = true
	c.must(c.Status().Update(t.Context(), b))
	now := m.settle("second")
	if now.Status.DPU.Attached || !strings.Contains(now.Status.Message, a.Name) {
		t.Fatalf("got %+v", now.Status)
	}
	c.must(c.Delete(t.Context(), now))
	m.settle("second")
	if c.get("second") != nil || len(m.shown()) != 1 {
		t.Fatalf("the second took the device of the first: %v", m.shown())
	}
}

// TestParameters: what a volume says goes before what its policy says, for the
// vendor's plugin as for SNAP.
func TestParameters(t *testing.T) {
	a := &storagev1alpha1.VolumeAttachment{}
	v := &storagev1alpha1.Volume{Spec: storagev1alpha1.VolumeSpec{
		Request:                 storagev1alpha1.VolumeRequest{VolumeMode: ptr.To(corev1.PersistentVolumeBlock)},
		StoragePolicyParameters: map[string]string{"mdts": "3", "num_queues": "1", "iops": "9", "tier": "gold"},
		StorageParameters:       map[string]string{"policy": "p", "num_queues": "2", "tier": "iron"},
	}}
	p := newPass(a)
	p.volume = v
	want := map[string]string{"policy": "p", "mdts": "3", "num_queues": "2", "iops": "9", "tier": "iron"}
	if d := cmp.Diff(want, openSpec(p).Parameters); d != "" {
		t.Errorf("the plugin's (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"mdts": "3", "num_queues": "2"}, controllerOptions(v)); d != "" {
		t.Errorf("SNAP's (-want +got):\n%s", d)
	}
	if v.Spec.StoragePolicyParameters["tier"] != "gold" || len(v.Spec.StorageParameters) != 3 {
		t.Errorf("the volume was changed: %+v", v.Spec)
	}
}

func TestControllerOptions(t *testing.T) {
	v := &storagev1alpha1.Volume{Spec: storagev1alpha1.VolumeSpec{
		StoragePolicyParameters: map[string]string{"mdts": "3", "num_queues": "1", "iops": "9"},
		StorageParameters:       map[string]string{"policy": "p", "num_queues": "2", "nqn": "x", "num_request_queues": "4"},
	}}
	for mode, want := range map[corev1.PersistentVolumeMode]map[string]string{
		corev1.PersistentVolumeBlock:      {"mdts": "3", "num_queues": "2"},
		corev1.PersistentVolumeFilesystem: {"num_request_queues": "4"},
	} {
		v.Spec.Request.VolumeMode = &mode
		if diff := cmp.Diff(want, controllerOptions(v)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", mode, diff)
		}
	}
}
