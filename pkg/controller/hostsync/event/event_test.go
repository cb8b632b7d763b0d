package event

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	world "github.com/moor-storage/moor/pkg/controller/hostsync/hostsynctest"
)

func TestRepeats(t *testing.T) {
	for _, tc := range []struct {
		name  string
		claim string
		bound bool
		want  string
	}{
		{"of a pending volume", "vol-pvc", false, "Warning ProvisioningFailed vendor claim vol-pvc in DPU cluster dpu-cluster: the array is full"},
		{"of a bound volume", "vol-pvc", true, ""},
		{"of somebody else's claim", "data", false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := world.New(t)
			v := world.Volume("vol", corev1.ReadWriteOnce)
			if tc.bound {
				v.Status.Phase = storagev1alpha1.DPUVolumeBound
			}
			w.AddHost(v)
			e := &corev1.Event{
				ObjectMeta: world.Mirror("e"), Type: corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: "the array is full",
				InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: tc.claim},
			}
			w.AddDPU(e)
			recorder := record.NewFakeRecorder(4)
			r := &Reconciler{Clusters: w.Clusters, Recorder: recorder}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e)}); err != nil {
				t.Fatal(err)
			}
			got := ""
			select {
			case got = <-recorder.Events:
			default:
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestGoneEvent(t *testing.T) {
	w := world.New(t)
	r := &Reconciler{Clusters: w.Clusters, Recorder: record.NewFakeRecorder(1)}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: world.Target, Name: "e"}}); err != nil {
		t.Fatal(err)
	}
}
