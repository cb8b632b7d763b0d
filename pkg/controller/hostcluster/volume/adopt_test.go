package volume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// madeByDPF is the Volume of user as DPF's controller makes it: with its annotation, without a finalizer.
func madeByDPF() *storagev1alpha1.Volume {
	m := mirror()
	m.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolume: kubetest.HostNamespace + "/vol"}
	available(m)
	m.Spec.Volume.ID = "vol"
	return m
}

// attachedTo is a VolumeAttachment of a volume, as DPF makes it, or with the label that Moor's have.
func attachedTo(name, volume, label string) *storagev1alpha1.VolumeAttachment {
	a := &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject(name)}
	a.Spec.NodeName, a.Spec.Source.VolumeRef = "dpu-a", &storagev1alpha1.ObjectRef{Name: volume}
	if label != "" {
		a.Labels = map[string]string{storagev1alpha1.LabelOwnerUID: label}
	}
	return a
}

// TestTakenOverFromDPF: a Volume that DPF made is Moor's once nothing is attached that DPF made.
func TestTakenOverFromDPF(t *testing.T) {
	const waits = "Volume vol in DPU cluster dpu-cluster was made by DPF and is taken over when nothing is attached that DPF made: " +
		"end the pods that use it, and have DPF remove VolumeAttachment a-vol there (DPU dpu-a)"
	for name, tc := range map[string]struct {
		there *storagev1alpha1.VolumeAttachment
		want  string
	}{
		"nothing is attached":         {nil, "DPUVolumeReconciled=True/Success"},
		"another volume is":           {attachedTo("a-other", "other", ""), "DPUVolumeReconciled=True/Success"},
		"by Moor":                     {attachedTo("a-vol", "vol", "its owner"), "DPUVolumeReconciled=True/Success"},
		"by DPF, under its name":      {attachedTo("a-vol", "vol", ""), "DPUVolumeReconciled=False/Pending: " + waits},
		"of none, as a broken one is": {&storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("broken")}, "DPUVolumeReconciled=True/Success"},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			v := user()
			v.Status.Phase = storagev1alpha1.DPUVolumeBound
			w.Host.Add(v, kubetest.DPUStoragePolicy("policy"))
			w.DPU.Add(madeByDPF())
			if tc.there != nil {
				w.DPU.Add(tc.there)
				w.CacheLists(&storagev1alpha1.VolumeAttachmentList{}) // it may be new
			}
			w.MustReconcile(r, "vol")
			got, _ := kubetest.Read(w.Host, user())
			if line := said(got)[0]; line != tc.want {
				t.Errorf("got %q, want %q", line, tc.want)
			}
			m, _ := kubetest.Read(w.DPU, mirror())
			taken := m.Labels[storagev1alpha1.LabelOwnerUID] == string(got.UID)
			if wanted := tc.want == "DPUVolumeReconciled=True/Success"; taken != wanted {
				t.Fatalf("taken over: %t, want %t", taken, wanted)
			}
			if !taken {
				return
			}
			if diff := cmp.Diff(map[string]string{"color": "red", storagev1alpha1.ParameterPolicy: "policy"}, m.Spec.StorageParameters); diff != "" {
				t.Error(diff)
			}
			if got.Status.Phase != storagev1alpha1.DPUVolumeBound || m.Spec.Volume.VolumeAttributes["lun"] != "7" {
				t.Errorf("%s, %+v", got.Status.Phase, m.Spec.Volume)
			}
			before := w.DPU.Writes()
			w.MustReconcile(r, "vol")
			if w.DPU.Writes() != before {
				t.Error("a pass over what is taken over writes")
			}
		})
	}
}

// TestNotTakenOver: what DPF made for another DPUVolume, and what says nothing, is not taken.
func TestNotTakenOver(t *testing.T) {
	for name, owner := range map[string]string{"another's": kubetest.HostNamespace + "/other", "of another namespace": "other/vol", "unknown": ""} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			w.Host.Add(user(), kubetest.DPUStoragePolicy("policy"))
			m := madeByDPF()
			m.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolume] = owner
			w.DPU.Add(m)
			w.MustReconcile(r, "vol")
			if m, _ := kubetest.Read(w.DPU, mirror()); m.Labels[storagev1alpha1.LabelOwnerUID] != "" {
				t.Error("it was taken")
			}
		})
	}
}

// TestWhatDPFLetsGoWakes: the volume that waits for it, and nothing else does.
func TestWhatDPFLetsGoWakes(t *testing.T) {
	_, r := open(t)
	dpf, moors := attachedTo("a-vol", "vol", ""), attachedTo("a-vol", "vol", "its owner")
	for name, c := range map[string]struct{ got, want bool }{
		"DPF's goes":   {dpfLets.Delete(event.TypedDeleteEvent[*storagev1alpha1.VolumeAttachment]{Object: dpf}), true},
		"Moor's goes":  {dpfLets.Delete(event.TypedDeleteEvent[*storagev1alpha1.VolumeAttachment]{Object: moors}), false},
		"DPF's comes":  {dpfLets.Create(event.TypedCreateEvent[*storagev1alpha1.VolumeAttachment]{Object: dpf}), false},
		"DPF's is new": {dpfLets.Update(event.TypedUpdateEvent[*storagev1alpha1.VolumeAttachment]{ObjectOld: dpf, ObjectNew: dpf}), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: wakes %t, want %t", name, c.got, c.want)
		}
	}
	if got := r.attachedOf(t.Context(), dpf); len(got) != 1 || got[0].NamespacedName != (client.ObjectKey{Namespace: kubetest.HostNamespace, Name: "vol"}) {
		t.Errorf("it wakes %v", got)
	}
	if got := r.attachedOf(t.Context(), &storagev1alpha1.VolumeAttachment{}); len(got) > 0 {
		t.Errorf("one of no volume wakes %v", got)
	}
}
