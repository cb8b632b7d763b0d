package attachment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func replicaOn(node string) *storagev1alpha1.DPUVolumeAttachment {
	a := user(node)
	a.Spec.Role = storagev1alpha1.RoleReplica
	return a
}

// prepared is what snap-node-driver writes once a replica stands.
func prepared(m *storagev1alpha1.VolumeAttachment) {
	shown(m)
	m.Status.DPU.Attached, m.Status.DPU.PreEmulated, m.Status.DPU.Epoch = false, true, 0
}

func role(to storagev1alpha1.Role) func(*storagev1alpha1.DPUVolumeAttachment) {
	return func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Role = to }
}

// conditions of an attachment, without words.
func conditions(a *storagev1alpha1.DPUVolumeAttachment) map[string]string {
	out := map[string]string{}
	for _, c := range a.Status.Conditions {
		out[c.Type] = string(c.Status)
	}
	return out
}

// beside makes a primary on a, shown, and a prepared replica on b.
func beside(t *testing.T) (*kubetest.Clusters, *Reconciler) {
	t.Helper()
	w, r := open(t)
	w.Host.Add(user("a"), replicaOn("b"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol")
	w.MustReconcile(r, "b-vol")
	kubetest.Change(w.DPU, mirror("b"), prepared)
	w.MustReconcile(r, "b-vol")
	return w, r
}

// TestReplicaBesidePrimary: no claim, no epoch, and a status of its own.
func TestReplicaBesidePrimary(t *testing.T) {
	w, r := beside(t)
	made, found := kubetest.Read(w.DPU, mirror("b"))
	if !found || made.Spec.Role != storagev1alpha1.RoleReplica || made.Spec.Epoch != 0 || !controllerutil.ContainsFinalizer(made, storagev1alpha1.FinalizerWriterClaim) {
		t.Fatalf("found %v, finalizers %v, spec %+v", found, made.Finalizers, made.Spec)
	}
	if claim := claimOf(w); claim.Status.Holder != "dpu-a" || claim.Status.Epoch != 1 {
		t.Errorf("the replica changed the claim to %+v", claim.Status)
	}
	got, _ := kubetest.Read(w.Host, user("b"))
	want := map[string]string{"Ready": "True", "DPUVolumeAttachmentReconciled": "True", "ControllerAttached": "True", "PreEmulated": "True", "DPUAttached": "False"}
	if d := cmp.Diff(want, conditions(got)); d != "" {
		t.Errorf("conditions (-want +got):\n%s", d)
	}
	s := got.Status
	if *s.DPUAttached || s.Epoch != 0 || s.Message != "" || s.Warmth != storagev1alpha1.WarmthPreEmulated || s.DPU == nil || s.DPU.PCIAddress != "3b:00.2" {
		t.Errorf("status %+v", s)
	}
	before := w.Writes()
	w.MustReconcile(r, "b-vol")
	if n := w.Writes() - before; n != 0 {
		t.Errorf("a pass over what has not changed wrote %d times", n)
	}
}

func TestReplicaWords(t *testing.T) {
	for name, tc := range map[string]struct {
		dpu    func(*storagev1alpha1.VolumeAttachment)
		words  string
		warmth storagev1alpha1.Warmth
	}{
		"vendor silent": {func(*storagev1alpha1.VolumeAttachment) {}, "waiting for the vendor to attach the volume to DPU dpu-b", ""},
		"DPU silent":    {stored, "waiting for snap-node-driver on DPU dpu-b to prepare the device", storagev1alpha1.WarmthStorageAttached},
		"DPU's words":   {func(m *storagev1alpha1.VolumeAttachment) { stored(m); m.Status.Message = "no function is free" }, "DPU dpu-b: no function is free", storagev1alpha1.WarmthStorageAttached},
		"prepared":      {prepared, "", storagev1alpha1.WarmthPreEmulated},
		"shown, still":  {shown, "", storagev1alpha1.WarmthAttached},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t, corev1.ReadWriteMany)
			w.Host.Add(replicaOn("b"))
			w.MustReconcile(r, "b-vol")
			kubetest.Change(w.DPU, mirror("b"), tc.dpu)
			w.MustReconcile(r, "b-vol")
			got, _ := kubetest.Read(w.Host, user("b"))
			if got.Status.Message != tc.words || got.Status.Warmth != tc.warmth {
				t.Errorf("message %q, warmth %q", got.Status.Message, got.Status.Warmth)
			}
			if ready := conditions(got)["Ready"] == "True"; ready != (tc.words == "") {
				t.Errorf("ready is %v", ready)
			}
		})
	}
}

// TestReplicaWarmth: the DPU learns of it, at first and of each change; what is
// to be attached is ready only when it is.
func TestReplicaWarmth(t *testing.T) {
	w, r := open(t, corev1.ReadWriteMany)
	a := replicaOn("b")
	a.Spec.Warmth = storagev1alpha1.WarmthAttached
	w.Host.Add(a)
	w.MustReconcile(r, "b-vol")
	if m, _ := kubetest.Read(w.DPU, mirror("b")); m.Spec.Warmth != storagev1alpha1.WarmthAttached || m.Spec.Role != storagev1alpha1.RoleReplica {
		t.Fatalf("spec %+v", m.Spec)
	}
	for _, step := range []struct {
		dpu    func(*storagev1alpha1.VolumeAttachment)
		wanted storagev1alpha1.Warmth
		seen   storagev1alpha1.Warmth
		ready  bool
		words  string
	}{
		{prepared, storagev1alpha1.WarmthAttached, storagev1alpha1.WarmthPreEmulated, false, "waiting for snap-node-driver on DPU dpu-b to show the device"},
		{shown, storagev1alpha1.WarmthAttached, storagev1alpha1.WarmthAttached, true, ""},
		{shown, storagev1alpha1.WarmthPreEmulated, storagev1alpha1.WarmthAttached, true, ""},
		{prepared, storagev1alpha1.WarmthPreEmulated, storagev1alpha1.WarmthPreEmulated, true, ""},
	} {
		kubetest.Change(w.Host, user("b"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Warmth = step.wanted })
		kubetest.Change(w.DPU, mirror("b"), step.dpu)
		w.MustReconcile(r, "b-vol")
		got, _ := kubetest.Read(w.Host, user("b"))
		if m, _ := kubetest.Read(w.DPU, mirror("b")); m.Spec.Warmth != step.wanted {
			t.Errorf("the DPU is told %s, wanted is %s", m.Spec.Warmth, step.wanted)
		}
		if s := got.Status; s.Warmth != step.seen || s.Message != step.words || (conditions(got)["Ready"] == "True") != step.ready || s.Epoch != 0 {
			t.Errorf("wanted %s: %+v, %v", step.wanted, s, conditions(got))
		}
	}
}

// TestReplicaOfOneWriterIsNeverAttached: it is refused with words, and the DPU
// never hears of it.
func TestReplicaOfOneWriterIsNeverAttached(t *testing.T) {
	for name, later := range map[string]bool{"from the beginning": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			a := replicaOn("b")
			if !later {
				a.Spec.Warmth = storagev1alpha1.WarmthAttached
			}
			w.Host.Add(a)
			w.MustReconcile(r, "b-vol")
			kubetest.Change(w.Host, user("b"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Warmth = storagev1alpha1.WarmthAttached })
			w.MustReconcile(r, "b-vol")
			if m, found := kubetest.Read(w.DPU, mirror("b")); found != later || m.Spec.Warmth == storagev1alpha1.WarmthAttached {
				t.Errorf("found %v, spec %+v", found, m.Spec)
			}
			got, _ := kubetest.Read(w.Host, user("b"))
			if !strings.Contains(got.Status.Message, "has a single writer, so a replica of it stays hidden") || conditions(got)["Ready"] != "False" {
				t.Errorf("message %q, %v", got.Status.Message, conditions(got))
			}
		})
	}
}

// TestPromotion: the DPU learns of role and epoch together, once the claim is
// free, and not before.
func TestPromotion(t *testing.T) {
	w, r := beside(t)
	kubetest.Change(w.Host, user("b"), role(storagev1alpha1.RolePrimary))
	w.MustReconcile(r, "b-vol")
	if m, _ := kubetest.Read(w.DPU, mirror("b")); m.Spec.Role != storagev1alpha1.RoleReplica || m.Spec.Epoch != 0 {
		t.Fatalf("before the claim is free: role %s, epoch %d", m.Spec.Role, m.Spec.Epoch)
	}
	waiting, _ := kubetest.Read(w.Host, user("b"))
	if s := waiting.Status; !strings.Contains(s.Message, "DPU dpu-a holds it") || s.Warmth != storagev1alpha1.WarmthPreEmulated || conditions(waiting)["Ready"] != "False" {
		t.Errorf("message %q, warmth %s, %v", s.Message, s.Warmth, conditions(waiting))
	}
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1}
	})
	w.AfterWrite(func(verb string, o client.Object) {
		m, ok := o.(*storagev1alpha1.VolumeAttachment)
		if ok && (m.Spec.Role == storagev1alpha1.RolePrimary) != (m.Spec.Epoch == 2) {
			t.Errorf("%s left role %s with epoch %d", verb, m.Spec.Role, m.Spec.Epoch)
		}
	})
	w.MustReconcile(r, "b-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-b" || c.Attachment != "b-vol" || c.Epoch != 2 {
		t.Errorf("claim %+v", c)
	}
	m, _ := kubetest.Read(w.DPU, mirror("b"))
	if m.Spec.Role != storagev1alpha1.RolePrimary || m.Spec.Epoch != 2 {
		t.Fatalf("role %s, epoch %d", m.Spec.Role, m.Spec.Epoch)
	}
	kubetest.Change(w.DPU, mirror("b"), func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU.Attached, m.Status.DPU.PreEmulated, m.Status.DPU.Epoch = true, false, 2
	})
	w.MustReconcile(r, "b-vol")
	got, _ := kubetest.Read(w.Host, user("b"))
	if s := got.Status; !*s.DPUAttached || s.Epoch != 2 || s.Warmth != storagev1alpha1.WarmthAttached || conditions(got)["Ready"] != "True" || conditions(got)["PreEmulated"] != "" {
		t.Errorf("status %+v, %v", s, conditions(got))
	}
	agree(t, got)
}

// TestPromotionInterrupted: whatever write is lost, the next passes end it,
// under one epoch.
func TestPromotionInterrupted(t *testing.T) {
	for _, late := range []bool{false, true} {
		for n := 1; n <= 3; n++ {
			w, r := beside(t)
			kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
				c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1}
			})
			kubetest.Change(w.Host, user("b"), role(storagev1alpha1.RolePrimary))
			w.LoseWrite(n, late)
			if err := w.Reconcile(r, "b-vol"); err == nil {
				t.Errorf("write %d was not lost", n)
			}
			w.MustReconcile(r, "b-vol")
			m, _ := kubetest.Read(w.DPU, mirror("b"))
			if c := claimOf(w).Status; c.Epoch != 2 || c.Attachment != "b-vol" || m.Spec.Epoch != 2 || m.Spec.Role != storagev1alpha1.RolePrimary {
				t.Errorf("write %d lost (late %v): claim %+v, spec %+v", n, late, c, m.Spec)
			}
		}
	}
}

func TestPromotionOfManyWriters(t *testing.T) {
	w, r := open(t, corev1.ReadWriteMany)
	w.Host.Add(replicaOn("b"))
	w.MustReconcile(r, "b-vol")
	kubetest.Change(w.Host, user("b"), role(storagev1alpha1.RolePrimary))
	w.MustReconcile(r, "b-vol")
	if m, _ := kubetest.Read(w.DPU, mirror("b")); m.Spec.Role != storagev1alpha1.RolePrimary || m.Spec.Epoch != 0 {
		t.Errorf("role %s, epoch %d", m.Spec.Role, m.Spec.Epoch)
	}
}
