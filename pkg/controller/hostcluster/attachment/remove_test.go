package attachment

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func TestRemove(t *testing.T) {
	w, r := open(t)
	r.Clock = w.Clock
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol")
	removed(w)
	w.MustReconcile(r, "a-vol")
	w.Step(kube.StatusGrace)
	expect := func(words string) {
		t.Helper()
		w.MustReconcile(r, "a-vol")
		got, found := kubetest.Read(w.Host, user("a"))
		if !found || got.Status.Message != words {
			t.Fatalf("found %v, message %q, want %q", found, got.Status.Message, words)
		}
		if line := kubetest.Conditions(got.Status.Conditions, storagev1alpha1.ConditionReady)[0]; line != "Ready=False/AwaitingDeletion: not ready: DPUVolumeAttachmentReconciled: "+words {
			t.Errorf("got %q", line)
		}
		if m, found := kubetest.Read(w.DPU, mirror("a")); !found || m.DeletionTimestamp.IsZero() {
			t.Errorf("mirror found %v, being deleted since %v", found, m.DeletionTimestamp)
		}
	}
	expect("waiting for DPU dpu-a to withdraw the device and for the vendor to detach it")
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Status.Message = "SNAP does not answer" })
	expect("DPU dpu-a: SNAP does not answer")
	freeClaim(w)
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
	w.MustReconcile(r, "a-vol")
	if _, found := kubetest.Read(w.Host, user("a")); found {
		t.Error("the attachment is still there")
	}
	w.MustReconcile(r, "a-vol")
}

// removed deletes the attachment, and returns it. The fake client stamps that by the real
// time, from which the clock goes on.
func removed(w *kubetest.Clusters) *storagev1alpha1.DPUVolumeAttachment {
	w.Host.Remove(user("a"))
	out, _ := kubetest.Read(w.Host, user("a"))
	w.Clock.SetTime(out.DeletionTimestamp.Time)
	return out
}

// asksAgain makes a pass, and says after what time it asks for another.
func asksAgain(t *testing.T, r *Reconciler) time.Duration {
	t.Helper()
	result, err := r.Reconcile(t.Context(), kube.RequestFor(kubetest.HostNamespace, "a-vol"))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// TestRemoveBeforeTheDPUHasClearedUp: an attachment whose epoch the storage has ended does not
// wait for a DPU that is heard and cannot withdraw the device; its VolumeAttachment does. By
// no other claim is it let go.
func TestRemoveBeforeTheDPUHasClearedUp(t *testing.T) {
	revoked := []moorv1alpha1.Revoked{{DPU: "dpu-a", Epoch: 1}}
	for name, c := range map[string]struct {
		claim func(*moorv1alpha1.WriterClaimStatus)
		goes  bool
	}{
		"free, by the storage's word": {func(s *moorv1alpha1.WriterClaimStatus) {
			*s = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1, Revoked: revoked}
		}, true},
		"granted to another since": {func(s *moorv1alpha1.WriterClaimStatus) {
			*s = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-b", Attachment: "b-vol", Epoch: 2, Revoked: revoked}
		}, true},
		"held":         {func(*moorv1alpha1.WriterClaimStatus) {}, false},
		"being fenced": {func(s *moorv1alpha1.WriterClaimStatus) { s.Phase, s.Revoked = moorv1alpha1.ClaimFencing, revoked }, false},
		"free, not on record": {func(s *moorv1alpha1.WriterClaimStatus) {
			*s = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1}
		}, false},
		"of another DPU": {func(s *moorv1alpha1.WriterClaimStatus) {
			*s = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1, Revoked: []moorv1alpha1.Revoked{{DPU: "dpu-b", Epoch: 1}}}
		}, false},
		"of an earlier epoch": {func(s *moorv1alpha1.WriterClaimStatus) {
			*s = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1, Revoked: []moorv1alpha1.Revoked{{DPU: "dpu-a", Epoch: 0}}}
		}, false},
		"lost": {func(s *moorv1alpha1.WriterClaimStatus) {
			*s = moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimLost, Epoch: 1, Revoked: revoked}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			r.Clock = w.Clock
			w.Host.Add(user("a"))
			w.MustReconcile(r, "a-vol")
			kubetest.Change(w.DPU, mirror("a"), shown)
			w.MustReconcile(r, "a-vol")
			removed(w)
			w.MustReconcile(r, "a-vol")
			kubetest.Change(w.DPU, claimOf(w), func(cl *moorv1alpha1.WriterClaim) { c.claim(cl.Status) })
			w.MustReconcile(r, "a-vol")
			if _, found := kubetest.Read(w.Host, user("a")); found == c.goes {
				t.Errorf("the attachment is there: %t", found)
			}
			if m, found := kubetest.Read(w.DPU, mirror("a")); !found || m.DeletionTimestamp.IsZero() || !m.Status.DPU.Attached {
				t.Errorf("the VolumeAttachment has not to wait for its DPU: found %t", found)
			}
		})
	}
}

// TestRemoveIsNotTold: the way out that most take in a moment is not written into the
// status, but what keeps an attachment is, at once.
func TestRemoveIsNotTold(t *testing.T) {
	w, r := open(t)
	r.Clock = w.Clock
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol")
	before := removed(w)
	if again := asksAgain(t, r); again <= 0 {
		t.Errorf("it is looked at again after %s", again)
	}
	if now, _ := kubetest.Read(w.Host, user("a")); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("written: %+v", now.Status)
	}
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Status.Message = "SNAP does not answer" })
	w.MustReconcile(r, "a-vol")
	if now, _ := kubetest.Read(w.Host, user("a")); now.Status.Message != "DPU dpu-a: SNAP does not answer" {
		t.Errorf("message %q", now.Status.Message)
	}
}

// TestAFenceIsOneStatus: that the right to write is being taken from an attachment is told
// by the end of its VolumeAttachment, which follows at once; if it does not, by itself.
func TestAFenceIsOneStatus(t *testing.T) {
	w, r := open(t)
	r.Clock = w.Clock
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFencing })
	writes := w.Writes()
	for range 2 {
		if again := asksAgain(t, r); again <= 0 {
			t.Errorf("it is looked at again after %s", again)
		}
	}
	if n := w.Writes() - writes; n != 0 {
		t.Errorf("%d writes at once, want none", n)
	}
	w.Step(fencedGrace)
	w.MustReconcile(r, "a-vol")
	if got, _ := kubetest.Read(w.Host, user("a")); !strings.Contains(got.Status.Message, "is being fenced") {
		t.Errorf("after the grace, message %q", got.Status.Message)
	}
	w.DPU.Remove(mirror("a"))
	w.MustReconcile(r, "a-vol")
	if got, _ := kubetest.Read(w.Host, user("a")); !strings.Contains(got.Status.Message, "is being deleted") || got.Status.DPUAttached == nil || *got.Status.DPUAttached {
		t.Errorf("its end is not told at once: %+v", got.Status)
	}
}

// TestRemoveWithoutTheVendor: the host cluster need not wait for a vendor's
// plugin that is dead. Whatever else is missing is waited for.
func TestRemoveWithoutTheVendor(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*storagev1alpha1.VolumeAttachment)
		gone   bool
	}{
		"the claim is freed": {func(*storagev1alpha1.VolumeAttachment) {}, true},
		"the claim is not freed": {func(m *storagev1alpha1.VolumeAttachment) {
			m.Finalizers = append(m.Finalizers, storagev1alpha1.FinalizerWriterClaim)
		}, false},
		"shown":                    {func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.Attached = true }, false},
		"an earlier epoch is over": {func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.RetiredEpoch-- }, false},
		"no right to write":        {func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Epoch, m.Status.DPU.RetiredEpoch = 0, 0 }, false},
		"the storage alone": {func(m *storagev1alpha1.VolumeAttachment) {
			m.Finalizers = []string{storagev1alpha1.FinalizerVolumeAttachment}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user("a"))
			w.MustReconcile(r, "a-vol")
			kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) {
				shown(m)
				m.Finalizers = []string{storagev1alpha1.FinalizerVolumeAttachment, storagev1alpha1.FinalizerDPUAttachment}
				m.Spec.Epoch, m.Status.DPU.Attached, m.Status.DPU.RetiredEpoch = 4, false, 4
				tc.change(m)
			})
			w.Host.Remove(user("a"))
			for range 2 {
				w.MustReconcile(r, "a-vol")
			}
			if _, found := kubetest.Read(w.Host, user("a")); found == tc.gone {
				t.Errorf("attachment found %v, want %v", found, !tc.gone)
			}
			if m, found := kubetest.Read(w.DPU, mirror("a")); !found || m.DeletionTimestamp.IsZero() {
				t.Fatal("the mirror has to be there, being deleted, until the plugin answers")
			}
			// A pod that comes back to the host waits for the plugin.
			if tc.gone {
				w.Host.Add(user("a"))
				w.MustReconcile(r, "a-vol")
				if got, _ := kubetest.Read(w.Host, user("a")); !strings.Contains(got.Status.Message, "earlier attachment of this name") {
					t.Errorf("message %q", got.Status.Message)
				}
			}
		})
	}
}

func TestRemoveSpecialCases(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hide  bool
		label string
	}{
		{"unseen mirror", true, ""},
		{"a predecessor's mirror, which was taken away by force", false, "another"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, r := open(t, corev1.ReadWriteMany)
			w.Host.Add(user("a"))
			w.MustReconcile(r, "a-vol")
			if tc.label != "" {
				kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) {
					m.Labels = map[string]string{"storage.moor.dev/owner-uid": tc.label}
				})
			}
			w.Host.Remove(user("a"))
			if tc.hide {
				w.CacheHides(mirror("a"))
			}
			w.MustReconcile(r, "a-vol")
			w.MustReconcile(r, "a-vol")
			if _, found := kubetest.Read(w.DPU, mirror("a")); found {
				t.Error("the mirror is still there")
			}
			if _, found := kubetest.Read(w.Host, user("a")); found {
				t.Error("the attachment is still there")
			}
		})
	}
}

// succeeded has the attachment taken away by force, and another of its name go.
func succeeded(w *kubetest.Clusters) {
	abandon(w)
	w.Host.Add(user("a"))
	kubetest.Change(w.Host, user("a"), func(a *storagev1alpha1.DPUVolumeAttachment) {
		a.Finalizers = []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
	})
	w.Host.Remove(user("a"))
}

// TestPredecessorThatWritesOn: an attachment that goes ends what an earlier one of its name has
// left, which holds the right to write, and waits until it is gone.
func TestPredecessorThatWritesOn(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	succeeded(w)
	w.MustReconcile(r, "a-vol")
	if m, found := kubetest.Read(w.DPU, mirror("a")); !found || m.DeletionTimestamp.IsZero() {
		t.Errorf("the VolumeAttachment: there %v, deleted at %v", found, m.DeletionTimestamp)
	}
	if got, want := messageOn(w, "a"), "a VolumeAttachment a-vol of an earlier attachment of this name is still being removed: waiting for DPU dpu-a to withdraw the device"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

// TestPredecessorOfADPUThatIsGone: what an earlier attachment has left, whose DPU was taken out and
// whose claim is lost, waits for a person's word, and says so.
func TestPredecessorOfADPUThatIsGone(t *testing.T) {
	w, r := open(t)
	r.Clock, r.Silent = w.Clock, func(dpu string) bool { return dpu == "dpu-a" }
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	w.MustReconcile(r, "a-vol")
	succeeded(w)
	loseClaim(w)
	for range 3 {
		w.MustReconcile(r, "a-vol")
	}
	if c := claimOf(w).Status; c == nil || c.Phase != moorv1alpha1.ClaimLost || c.Lost[0].DPU != "dpu-a" {
		t.Errorf("the claim is %+v", c)
	}
	if got := messageOn(w, "a"); !strings.Contains(got, "patch writerclaim vol --type merge") {
		t.Errorf("told %q", got)
	}
}

// TestRemoveBySilent: of an attachment that goes a person is told what to do if its DPU is silent, and
// not what that has said before.
func TestRemoveBySilent(t *testing.T) {
	for mode, want := range map[corev1.PersistentVolumeAccessMode]string{
		corev1.ReadWriteOnce: "patch writerclaim vol --type merge",
		corev1.ReadWriteMany: "patch volumeattachments.storage.dpu.nvidia.com a-vol --type merge",
	} {
		t.Run(string(mode), func(t *testing.T) {
			w, r := open(t, mode)
			silent := false
			r.Clock, r.Silent = w.Clock, func(dpu string) bool { return silent && dpu == "dpu-a" }
			w.Host.Add(user("a"))
			w.MustReconcile(r, "a-vol")
			kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) {
				shown(m)
				m.Finalizers = append(m.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
				m.Status.Message = "SNAP does not answer"
			})
			w.MustReconcile(r, "a-vol")
			removed(w)
			w.Step(kube.StatusGrace)
			w.MustReconcile(r, "a-vol")
			if got := messageOn(w, "a"); got != "DPU dpu-a: SNAP does not answer" {
				t.Errorf("told %q", got)
			}
			silent = true
			w.MustReconcile(r, "a-vol")
			if got := messageOn(w, "a"); !strings.Contains(got, "DPU dpu-a is silent") || !strings.Contains(got, want) {
				t.Errorf("told %q", got)
			}
		})
	}
}

// TestSuccessorsMirrorStays: an attachment that only a cache shows, and that goes there, does
// not end what was made for the one that has its name since.
func TestSuccessorsMirrorStays(t *testing.T) {
	w, r := open(t, corev1.ReadWriteMany)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	w.Host.Remove(user("a"))
	old, _ := kubetest.Read(w.Host, user("a"))
	kubetest.Change(w.Host, user("a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	w.Host.Add(user("a"))
	anew, _ := kubetest.Read(w.Host, user("a"))
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) {
		m.Labels = map[string]string{storagev1alpha1.LabelOwnerUID: string(anew.UID)}
	})
	w.CacheShows(old)
	_ = w.Reconcile(r, "a-vol") // its finalizer may be refused, as it is another's
	if m, found := kubetest.Read(w.DPU, mirror("a")); !found || !m.DeletionTimestamp.IsZero() {
		t.Errorf("the VolumeAttachment: there %v, deleted at %v", found, m.DeletionTimestamp)
	}
}

// TestNewOfSameName: while the mirror of an attachment that was deleted is
// still going, its successor of the same name waits, and takes nothing of it.
func TestNewOfSameName(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	kubetest.Change(w.DPU, mirror("a"), shown)
	kubetest.Change(w.Host, user("a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	w.Host.Remove(user("a"))
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	got, _ := kubetest.Read(w.Host, user("a"))
	if got.UID == "" || got.Status.DPU != nil || *got.Status.DPUAttached || got.Status.Epoch != 0 {
		t.Errorf("the successor took over %+v", got.Status)
	}
	agree(t, got)
}
