package dpf

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// asNode is what node a asks through, over the host cluster in memory.
func asNode(t *testing.T, h *hostCluster, cached client.Reader) *attachment.Attachments {
	t.Helper()
	if cached == nil {
		cached = h
	}
	cache := &cacheOf{FakeInformers: informertest.FakeInformers{Scheme: h.Scheme()}, reader: cached}
	a, err := attachment.ForNode(t.Context(), request.Options{Client: h, Cache: cache, Live: h, Namespace: namespace, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func by(requester storagev1alpha1.Requester, role storagev1alpha1.Role) *storagev1alpha1.DPUVolumeAttachment {
	a := anAttachment(role)
	a.Spec.Requester = requester
	return a
}

func TestNodeAttach(t *testing.T) {
	elsewhere := anAttachment("")
	elsewhere.Name, elsewhere.UID, elsewhere.Spec.DPUNodeName = "b-vol", "2", "b"
	yes := true
	elsewhere.Status.DPUAttached = &yes
	ours := by(storagev1alpha1.RequesterNode, "")
	ours.Status.DPUAttached = &yes
	for name, tc := range map[string]struct {
		there   []client.Object
		patches int
		want    error
	}{
		"nothing":      {nil, 0, nil},
		"replica":      {[]client.Object{anAttachment(storagev1alpha1.RoleReplica)}, 1, nil},
		"asked":        {[]client.Object{ours}, 0, nil},
		"user's":       {[]client.Object{by("", "")}, 0, provisioner.ErrExists},
		"controller's": {[]client.Object{by(storagev1alpha1.RequesterController, "")}, 0, provisioner.ErrExists},
		// The claim decides between nodes, not the one that asks.
		"held elsewhere": {[]client.Object{elsewhere}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, show(t), append(tc.there, aVolume(), aNode("a"))...)
			got, err := asNode(t, h, nil).Attach(t.Context(), attachSpec())
			if !errors.Is(err, tc.want) || (err != nil) != (tc.want != nil) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if h.patches != tc.patches {
				t.Errorf("%d patches, want %d", h.patches, tc.patches)
			}
			if err != nil {
				return
			}
			now := anAttachment("")
			if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil || !now.Spec.OfNode() || now.Spec.Role == storagev1alpha1.RoleReplica {
				t.Errorf("spec %+v, error %v", now.Spec, err)
			}
			if got.PublishContext["nv-pciDeviceAddress"] != "3b:00.2" {
				t.Errorf("publish context %v", got.PublishContext)
			}
		})
	}
}

// TestNodeLeavesItsRequest: a wait that is cut short leaves the request, which
// is granted when it can be, and taken back by Detach.
func TestNodeLeavesItsRequest(t *testing.T) {
	h := newHost(t, nil, aVolume(), aNode("a"))
	a := asNode(t, h, nil)
	_, err := a.Attach(t.Context(), attachSpec())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	now := anAttachment("")
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil || !now.Spec.OfNode() {
		t.Fatalf("spec %+v, error %v", now.Spec, err)
	}
	for range 2 {
		if err := a.Detach(t.Context(), "vol", "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("after the detach: %v", err)
	}
}

// TestTheVolumeWasTaken: while a call waits, neither the kubelet nor
// external-attacher can let go of the volume for a pod that is deleted; so no
// call waits for what does not come. One who waits for another's volume does wait.
func TestTheVolumeWasTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		want   error
	}{
		"taken":          {storagev1alpha1.ReasonAwaitingDeletion, provisioner.ErrBusy},
		"held elsewhere": {storagev1alpha1.ReasonPending, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			for _, requester := range []storagev1alpha1.Requester{storagev1alpha1.RequesterNode, ""} {
				ours := by(requester, "")
				ours.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, Status: metav1.ConditionFalse, Reason: tc.reason}}
				h := newHost(t, nil, ours, aVolume(), aNode("a"))
				attach := h.platform.Attachments.Attach
				if requester == storagev1alpha1.RequesterNode {
					attach = asNode(t, h, nil).Attach
				}
				if _, err := attach(t.Context(), attachSpec()); !errors.Is(err, tc.want) {
					t.Errorf("asked by %q: error %v, want %v", requester, err, tc.want)
				}
			}
		})
	}
}

// TestNodeGivesBackItsOwn: nothing but what the node has asked for.
func TestNodeGivesBackItsOwn(t *testing.T) {
	other := by(storagev1alpha1.RequesterNode, "")
	other.Spec.DPUVolumeName = "x"
	for name, tc := range map[string]struct {
		there     *storagev1alpha1.DPUVolumeAttachment
		AwaitGone bool
	}{
		"its own":        {by(storagev1alpha1.RequesterNode, storagev1alpha1.RolePrimary), true},
		"a user's":       {by("", storagev1alpha1.RolePrimary), false},
		"a replica":      {by("", storagev1alpha1.RoleReplica), false},
		"of a namesake":  {other, false},
		"the controller": {by(storagev1alpha1.RequesterController, storagev1alpha1.RolePrimary), false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil, tc.there)
			if err := asNode(t, h, nil).Detach(t.Context(), "vol", "a"); err != nil {
				t.Fatal(err)
			}
			err := h.Get(t.Context(), client.ObjectKeyFromObject(tc.there), tc.there)
			if (err != nil) != tc.AwaitGone {
				t.Errorf("gone %v, want %v (%v)", err != nil, tc.AwaitGone, err)
			}
		})
	}
}

// TestNodeWaitsUntilItIsGone: a cache that does not show the attachment yet is
// no proof that it is gone.
func TestNodeWaitsUntilItIsGone(t *testing.T) {
	held := by(storagev1alpha1.RequesterNode, "")
	held.Finalizers = []string{"x/y"}
	h := newHost(t, nil, held)
	empty := newHost(t, nil)
	a := asNode(t, h, empty)
	if err := a.Detach(t.Context(), "vol", "a"); !errors.Is(err, context.DeadlineExceeded) || !provisioner.Uncertain(err) {
		t.Errorf("got %v", err)
	}
	now := anAttachment("")
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil || now.DeletionTimestamp.IsZero() {
		t.Errorf("deletion %v, error %v", now.DeletionTimestamp, err)
	}
}

// TestControllerKeepsOff: what a node has asked for is not the controller's.
func TestControllerKeepsOff(t *testing.T) {
	h := newHost(t, show(t), aVolume(), aNode("a"), by(storagev1alpha1.RequesterNode, ""))
	if _, err := h.platform.Attachments.Attach(t.Context(), attachSpec()); !errors.Is(err, provisioner.ErrExists) {
		t.Errorf("got %v", err)
	}
}

func TestAttachModeFlag(t *testing.T) {
	for in, want := range map[string]AttachMode{"Controller": AttachController, "node": AttachNode, "NODE": AttachNode, "": "", "both": ""} {
		var m AttachMode
		if err := m.Set(in); (err != nil) != (want == "") || m != want {
			t.Errorf("%q: %q, %v", in, m, err)
		}
	}
}
