package attachment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

// open makes hosts a and b with DPUs and volume vol, bound, single-writer.
func open(t *testing.T, modes ...corev1.PersistentVolumeAccessMode) (*kubetest.Clusters, *Reconciler) {
	if modes == nil {
		modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	w := kubetest.New(t)
	bound := kubetest.DPUVolume("vol", modes...)
	bound.Status.Phase = storagev1alpha1.DPUVolumeBound
	w.Host.Add(kubetest.DPUStorageNode("a"), kubetest.DPUStorageNode("b"), bound)
	w.DPU.Add(kubetest.MirrorOfFirst("vol"))
	return w, &Reconciler{Clusters: hostclustertest.Clusters(w), Users: usersOf(w)}
}

func usersOf(w *kubetest.Clusters) *Users {
	return &Users{Users: podvolume.Users{Host: w.Host.Cluster, Drivers: []string{kubetest.Driver}}}
}

func user(node string) *storagev1alpha1.DPUVolumeAttachment {
	return kubetest.DPUVolumeAttachment("vol", node)
}

func mirror(node string) *storagev1alpha1.VolumeAttachment {
	return &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject(node + "-vol")}
}

func claimOf(w *kubetest.Clusters) *moorv1alpha1.WriterClaim {
	claim, _ := kubetest.Read(w.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("vol")})
	return claim
}

// stored is what snap-controller writes once the vendor has attached.
func stored(m *storagev1alpha1.VolumeAttachment) {
	m.Finalizers = append(m.Finalizers, storagev1alpha1.FinalizerVolumeAttachment)
	m.Status.StorageAttached = true
	m.Spec.Parameters = map[string]string{"lun": "7"}
}

// shown is what snap-node-driver writes once the host sees the device.
func shown(m *storagev1alpha1.VolumeAttachment) {
	stored(m)
	m.Finalizers = append(m.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
	m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{
		Attached: true, PCIDeviceAddress: "3b:00.2", DeviceName: "bdev", FuncVUID: "vuid", Epoch: m.Spec.Epoch,
		BdevAttrs: &storagev1alpha1.BdevAttrs{NVMeNsID: 1, NVMeUUID: "uuid"},
	}
}

// agree checks that status and conditions say the same.
func agree(t *testing.T, a *storagev1alpha1.DPUVolumeAttachment) {
	t.Helper()
	s := a.Status
	stored, dpu := s.ControllerAttached != nil && *s.ControllerAttached, s.DPUAttached != nil && *s.DPUAttached
	is := func(kind string) bool { return kubetest.Conditions(s.Conditions, kind)[0] == kind+"=True/Success" }
	if is(storagev1alpha1.ConditionControllerAttached) != stored || is(storagev1alpha1.ConditionDPUAttached) != dpu {
		t.Errorf("controllerAttached %v and dpuAttached %v contradict %q", stored, dpu, kubetest.Conditions(s.Conditions, storagev1alpha1.ConditionControllerAttached, storagev1alpha1.ConditionDPUAttached))
	}
	if (s.DPU != nil) != dpu || (s.Epoch != 0 || s.AttachmentMetadata != nil) && !dpu {
		t.Errorf("dpuAttached is %v, but dpu is %v, epoch %d, metadata %v", dpu, s.DPU, s.Epoch, s.AttachmentMetadata)
	}
	if is(storagev1alpha1.ConditionReady) && (!stored || !dpu || s.Message != "") {
		t.Errorf("ready with controllerAttached %v, dpuAttached %v, message %q", stored, dpu, s.Message)
	}
	if !is(storagev1alpha1.ConditionReady) && s.Message == "" {
		t.Error("not ready, and no words why")
	}
}

func TestWords(t *testing.T) {
	host := func(node *moorv1alpha1.DPUStorageNode, dpu string) func(*kubetest.Clusters) {
		return func(w *kubetest.Clusters) {
			kubetest.Change(w.Host, node, func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = dpu })
		}
	}
	there := func(change func(*storagev1alpha1.VolumeAttachment)) func(*kubetest.Clusters) {
		return func(w *kubetest.Clusters) { kubetest.Change(w.DPU, mirror("a"), change) }
	}
	vol := kubetest.DPUVolume("vol")
	for _, tc := range []struct {
		name   string
		before func(*kubetest.Clusters) // the first pass
		after  func(*kubetest.Clusters) // it, and before the second
		want   string
	}{
		{"no volume", func(w *kubetest.Clusters) { w.Host.Remove(vol) }, nil, "DPUVolume vol does not exist in namespace users"},
		{"volume not bound", func(w *kubetest.Clusters) {
			kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Status.Phase = storagev1alpha1.DPUVolumePending })
		}, nil, "DPUVolume vol is not bound yet"},
		{"volume being deleted", func(w *kubetest.Clusters) {
			kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Finalizers = []string{"x/y"} })
			w.Host.Remove(kubetest.DPUVolume("vol"))
		}, nil, "DPUVolume vol is being deleted"},
		{"no node", func(w *kubetest.Clusters) { w.Host.Remove(kubetest.DPUStorageNode("a")) }, nil, "node a has no DPUStorageNode: does it have a DPU, and does snap-csi-plugin run there?"},
		{"node without DPU", host(kubetest.DPUStorageNode("a"), ""), nil, "spec.dpuName of DPUStorageNode a is empty: set it to the name of that host's DPU in the DPU cluster"},
		{"another DPU since", nil, host(kubetest.DPUStorageNode("a"), "dpu-new"), "it was made for DPU dpu-a, but node a now has DPU dpu-new: delete the attachment to move it"},
		{"vendor silent", nil, nil, "waiting for the vendor to attach the volume to DPU dpu-a"},
		{"vendor's words", nil, there(func(m *storagev1alpha1.VolumeAttachment) { m.Status.StorageMessage = "the array is full" }), "the array is full"},
		{"DPU silent", nil, there(stored), "waiting for snap-node-driver on DPU dpu-a to show the device"},
		{"DPU's words", nil, there(func(m *storagev1alpha1.VolumeAttachment) { stored(m); m.Status.Message = "no function is free" }), "DPU dpu-a: no function is free"},
		{"DPU's words of itself", nil, there(func(m *storagev1alpha1.VolumeAttachment) {
			stored(m)
			m.Status.Message = "DPU dpu-a has no function free"
		}), "DPU dpu-a has no function free"},
		{"shown", nil, there(shown), ""},
		{"mirror being deleted", nil, func(w *kubetest.Clusters) { there(shown)(w); w.DPU.Remove(mirror("a")) }, "VolumeAttachment a-vol in the DPU cluster is being deleted"},
		{"namesake", nil, there(func(m *storagev1alpha1.VolumeAttachment) { shown(m); m.Labels = map[string]string{} }), "a VolumeAttachment a-vol of an earlier attachment of this name is still being removed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"))
			for _, f := range []func(*kubetest.Clusters){tc.before, tc.after} {
				if f != nil {
					f(w)
				}
				w.MustReconcile(r, "a-vol")
			}
			got, _ := kubetest.Read(w.Host, user("a"))
			if got.Status.Message != tc.want {
				t.Errorf("message %q, want %q", got.Status.Message, tc.want)
			}
			agree(t, got)
			ready := kubetest.Conditions(got.Status.Conditions, storagev1alpha1.ConditionReady)[0]
			if (ready == "Ready=True/Success") != (tc.want == "") || !strings.Contains(ready, tc.want) {
				t.Errorf("got %q", ready)
			}
			reason := meta.FindStatusCondition(got.Status.Conditions, storagev1alpha1.ConditionDPUVolumeAttachmentReconciled).Reason
			if (reason == storagev1alpha1.ReasonAwaitingDeletion) != (tc.name == "mirror being deleted") {
				t.Errorf("reason %s: a node takes it for the word that the volume is gone from it", reason)
			}
			before := w.Writes()
			w.MustReconcile(r, "a-vol")
			if n := w.Writes() - before; n != 0 {
				t.Errorf("a pass over what has not changed wrote %d times", n)
			}
		})
	}
}

func TestShown(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	made, _ := kubetest.Read(w.DPU, mirror("a"))
	if made.Spec.NodeName != "dpu-a" || made.Spec.Epoch != 1 || made.Spec.Source.VolumeRef.Name != "vol" ||
		!controllerutil.ContainsFinalizer(made, storagev1alpha1.FinalizerWriterClaim) {
		t.Fatalf("mirror: finalizers %v, spec %+v", made.Finalizers, made.Spec)
	}
	claim := claimOf(w)
	if claim.Status == nil || claim.Status.Phase != moorv1alpha1.ClaimGranted || claim.Status.Holder != "dpu-a" || claim.Status.Attachment != "a-vol" || claim.Status.Epoch != 1 {
		t.Fatalf("claim: %+v", claim.Status)
	}
	if owners := claim.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Volume" || owners[0].UID == "" {
		t.Errorf("the claim has owners %v: it would outlive its volume", owners)
	}
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol")
	got, _ := kubetest.Read(w.Host, user("a"))
	want := &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2", FuncVUID: "vuid", DeviceName: "bdev", NVMeAttrs: &storagev1alpha1.NVMeAttrs{NamespaceID: 1, NamespaceUUID: "uuid"}}
	if diff := cmp.Diff(want, got.Status.DPU); diff != "" {
		t.Errorf("status.dpu (-want +got):\n%s", diff)
	}
	if got.Status.Epoch != 1 || !cmp.Equal(got.Status.AttachmentMetadata, map[string]string{"lun": "7"}) {
		t.Errorf("epoch %d, metadata %v", got.Status.Epoch, got.Status.AttachmentMetadata)
	}
	// The DPU withdraws: nothing of what it showed stays.
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.Attached = false })
	w.MustReconcile(r, "a-vol")
	got, _ = kubetest.Read(w.Host, user("a"))
	agree(t, got)
}

func TestManyWritersNeedNoClaim(t *testing.T) {
	w, r := open(t, corev1.ReadWriteMany)
	for _, node := range []string{"a", "b"} {
		w.Host.Add(user(node))
		w.MustReconcile(r, node+"-vol")
		got, found := kubetest.Read(w.DPU, mirror(node))
		if !found || got.Spec.Epoch != 0 || len(got.Finalizers) != 0 {
			t.Errorf("%s: found %v, epoch %d, finalizers %v", node, found, got.Spec.Epoch, got.Finalizers)
		}
	}
	if claim := claimOf(w); claim.UID != "" {
		t.Errorf("a claim was made: %+v", claim)
	}
}

// TestSecondHostWaits: the loser has words and nothing in the DPU cluster.
func TestSecondHostWaits(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"), user("b"))
	w.MustReconcile(r, "a-vol")
	w.MustReconcile(r, "b-vol")
	if _, found := kubetest.Read(w.DPU, mirror("b")); found {
		t.Error("the loser has a VolumeAttachment")
	}
	got, _ := kubetest.Read(w.Host, user("b"))
	if want := "volume vol has a single writer, and DPU dpu-a holds it (attachment a-vol, epoch 1): this attachment waits until that one is deleted"; got.Status.Message != want {
		t.Errorf("message %q, want %q", got.Status.Message, want)
	}
	agree(t, got)
	if claim := claimOf(w); claim.Status.Holder != "dpu-a" || claim.Status.Epoch != 1 {
		t.Errorf("claim %+v", claim.Status)
	}
	if woken := r.ofClaim(t.Context(), claimOf(w)); len(woken) != 2 {
		t.Errorf("the claim wakes %v, want both attachments", woken)
	}
}

// TestLostRace: another granted between our read of the claim and our write.
func TestLostRace(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"), user("b"))
	raced := false
	w.AfterWrite(func(verb string, o client.Object) {
		if _, ok := o.(*storagev1alpha1.VolumeAttachment); ok && verb == "create" && !raced {
			raced = true
			w.MustReconcile(r, "b-vol")
		}
	})
	if err := w.Reconcile(r, "a-vol"); err != nil {
		t.Logf("first pass: %v", err)
	}
	w.MustReconcile(r, "a-vol")
	claim := claimOf(w)
	if claim.Status.Holder != "dpu-b" || claim.Status.Epoch != 1 {
		t.Fatalf("claim %+v, want the first to be granted", claim.Status)
	}
	if a, _ := kubetest.Read(w.DPU, mirror("a")); a.Spec.Epoch != 0 {
		t.Errorf("the loser's VolumeAttachment has epoch %d", a.Spec.Epoch)
	}
	got, _ := kubetest.Read(w.Host, user("a"))
	agree(t, got)
}

// TestNoGrantToGone: a mirror that the cache still shows, but that is gone or
// on its way out, gets no right to write: it would never be taken back.
func TestNoGrantToGone(t *testing.T) {
	for name, end := range map[string]func(w *kubetest.Clusters){
		"gone": func(w *kubetest.Clusters) {
			kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
			w.DPU.Remove(mirror("a"))
		},
		"being deleted": func(w *kubetest.Clusters) { w.DPU.Remove(mirror("a")) },
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"))
			w.MustReconcile(r, "a-vol")
			sound, _ := kubetest.Read(w.DPU, mirror("a"))
			kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
				c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1}
			})
			end(w)
			w.CacheShows(sound)
			if err := w.Reconcile(r, "a-vol"); err != nil {
				t.Logf("pass: %v", err)
			}
			if claim := claimOf(w); claim.Status.Phase != moorv1alpha1.ClaimFree {
				t.Errorf("claim %+v", claim.Status)
			}
		})
	}
}

func TestVolumeGoneThere(t *testing.T) {
	w, r := open(t)
	w.DPU.Remove(&storagev1alpha1.Volume{ObjectMeta: kubetest.DPUObject("vol")})
	w.Host.Add(user("a"))
	err := w.Reconcile(r, "a-vol")
	if err == nil || !strings.Contains(err.Error(), "volume vol does not exist in DPU cluster dpu-cluster, though it is bound: was it deleted there by hand?") {
		t.Fatalf("got %v", err)
	}
	got, _ := kubetest.Read(w.Host, user("a"))
	if line := kubetest.Conditions(got.Status.Conditions, storagev1alpha1.ConditionDPUVolumeAttachmentReconciled)[0]; !strings.Contains(line, "False/Error: volume vol does not exist") {
		t.Errorf("got %q", line)
	}
	agree(t, got)
}

func TestWakes(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"), user("b"), kubetest.DPUVolumeAttachment("other", "a"))
	for name, n := range map[string]int{
		"volume": len(r.ofVolume(t.Context(), kubetest.DPUVolume("vol"))),
		"node":   len(r.ofHost(t.Context(), kubetest.DPUStorageNode("a"))),
		"claim":  len(r.ofClaim(t.Context(), &moorv1alpha1.WriterClaim{Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "vol"}})),
	} {
		if n != 2 {
			t.Errorf("a %s wakes %d attachments, want 2", name, n)
		}
	}
}

// TestADPUThatTwoHostsName: nothing is made, or granted, on a DPU that several hosts name, and
// what has been granted stays. The attachments of all of them look again once that is over.
func TestADPUThatTwoHostsName(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	other := kubetest.DPUVolume("other", corev1.ReadWriteOnce)
	other.Status.Phase = storagev1alpha1.DPUVolumeBound
	w.Host.Add(other, kubetest.DPUVolumeAttachment("other", "a"), kubetest.DPUVolumeAttachment("other", "b"))
	w.DPU.Add(kubetest.MirrorOfFirst("other"))
	kubetest.Change(w.Host, kubetest.DPUStorageNode("b"), func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-a" })
	for _, host := range []string{"a", "b"} {
		w.MustReconcile(r, host+"-other")
		a, _ := kubetest.Read(w.Host, kubetest.DPUVolumeAttachment("other", host))
		if !strings.Contains(a.Status.Message, "DPUStorageNodes a, b all name DPU dpu-a, which sits in one of these hosts alone: correct spec.dpuName") {
			t.Errorf("host %s: says %q", host, a.Status.Message)
		}
		if _, found := kubetest.Read(w.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject(host + "-other")}); found {
			t.Errorf("host %s: it is made", host)
		}
	}
	w.MustReconcile(r, "a-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted {
		t.Errorf("what was granted does not stay: %+v", c)
	}
	b, _ := kubetest.Read(w.Host, kubetest.DPUStorageNode("b"))
	if n := len(r.ofHost(t.Context(), b)); n != 3 {
		t.Errorf("host b wakes %d attachments, want its own and the two of host a", n)
	}
	kubetest.Change(w.Host, kubetest.DPUStorageNode("b"), func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-b" })
	w.MustReconcile(r, "a-other")
	if _, found := kubetest.Read(w.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-other")}); !found {
		t.Error("nothing is made once that is over")
	}
}
