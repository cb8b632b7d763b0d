package events

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

func TestRepeats(t *testing.T) {
	for _, tc := range []struct {
		name  string
		claim string
		bound bool
		want  string
	}{
		{"of a pending volume", "vol-pvc", false, "Warning ProvisioningFailed vendor claim vol-pvc in DPU cluster dpu-cluster: the array is full 3"},
		{"of a bound volume", "vol-pvc", true, ""},
		{"of another's claim", "data", false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := kubetest.New(t)
			v := kubetest.DPUVolume("vol", corev1.ReadWriteOnce)
			if tc.bound {
				v.Status.Phase = storagev1alpha1.DPUVolumeBound
			}
			w.Host.Add(v)
			e := &corev1.Event{
				ObjectMeta: kubetest.DPUObject("e"), Type: corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: "the array is full", Count: 3,
				InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: tc.claim},
			}
			w.DPU.Add(e)
			// Once more, as after a restart: what was told is not written again.
			written := 0
			for range 2 {
				written = w.Writes()
				r := &ProvisioningReconciler{Clusters: hostclustertest.Clusters(w)}
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e)}); err != nil {
					t.Fatal(err)
				}
			}
			if n := w.Writes() - written; n != 0 {
				t.Errorf("what was told already was written again: %d writes", n)
			}
			var told corev1.EventList
			if err := w.Host.Direct.List(t.Context(), &told); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, e := range told.Items {
				got += fmt.Sprintf("%s %s %s %d", e.Type, e.Reason, e.Message, e.Count)
				if o := e.InvolvedObject; o.Kind != "DPUVolume" || o.Name != "vol" || o.UID == "" || o.Namespace != e.Namespace {
					t.Errorf("about %+v", o)
				}
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestGoneProvisioningEvent(t *testing.T) {
	w := kubetest.New(t)
	r := &ProvisioningReconciler{Clusters: hostclustertest.Clusters(w)}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: kubetest.DPUNamespace, Name: "e"}}); err != nil {
		t.Fatal(err)
	}
}
