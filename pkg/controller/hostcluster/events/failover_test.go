package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

const driver = "csi.snap.nvidia.com"

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func persistent(name, handle, of string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef:               &corev1.ObjectReference{Namespace: "apps", Name: "data", UID: "claim"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: of, VolumeHandle: handle}},
	}}
}

func pod(name string, age time.Duration, phase corev1.PodPhase, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon.Add(-age))},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// ephemeral is a pod that makes its claim itself.
func ephemeral() *corev1.Pod {
	p := pod("p", time.Minute, corev1.PodRunning, "")
	p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	return p
}

func about(kind, reason string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.HostNamespace, Name: "e", UID: "e"}, Type: corev1.EventTypeWarning, Reason: reason,
		Message: "so it is", Count: 1, LastTimestamp: metav1.NewTime(noon),
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: kubetest.HostNamespace, Name: "vol"},
	}
}

// heard lists who was told what.
func heard(t *testing.T, w *kubetest.Clusters) []string {
	t.Helper()
	var list corev1.EventList
	if err := w.Host.Direct.List(t.Context(), &list, client.InNamespace("apps")); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		out = append(out, fmt.Sprintf("%s %s (%s): %s %s %d: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.InvolvedObject.UID, e.Type, e.Reason, e.Count, e.Message))
	}
	slices.Sort(out)
	return out
}

func TestWhoIsTold(t *testing.T) {
	claim := func(reason string) string {
		return "PersistentVolumeClaim data (claim): Warning " + reason + " 1: volume vol: so it is"
	}
	ofPod := func(name string) string {
		return fmt.Sprintf("Pod %s (%s): Warning Promoted 1: volume vol: so it is", name, name)
	}
	pv := persistent("vol", "vol", driver)
	unbound := pv.DeepCopy()
	unbound.Spec.ClaimRef = nil
	own := pv.DeepCopy()
	own.Spec.ClaimRef.Name = "p-v"
	for name, tc := range map[string]struct {
		event *corev1.Event
		there []client.Object
		want  []string
	}{
		"the claim":                   {about("DPUVolume", "Promoted"), []client.Object{pv}, []string{claim("Promoted")}},
		"and its pod":                 {about("DPUVolume", "Promoted"), []client.Object{pv, pod("p", time.Second, corev1.PodPending, "data")}, []string{claim("Promoted"), ofPod("p")}},
		"the pod that made the claim": {about("DPUVolume", "Promoted"), []client.Object{own, ephemeral()}, []string{strings.Replace(claim("Promoted"), "data", "p-v", 1), ofPod("p")}},
		"no pod that came later":      {about("DPUVolume", "Promoted"), []client.Object{pv, pod("p", -time.Second, corev1.PodPending, "data")}, []string{claim("Promoted")}},
		"no pod that is over":         {about("DPUVolume", "Promoted"), []client.Object{pv, pod("p", time.Second, corev1.PodFailed, "data")}, []string{claim("Promoted")}},
		"no pod of another claim":     {about("DPUVolume", "Promoted"), []client.Object{pv, pod("p", time.Second, corev1.PodRunning, "logs")}, []string{claim("Promoted")}},
		"a release: the claim":        {about("DPUVolume", "FailoverReleased"), []client.Object{pv, pod("p", time.Second, corev1.PodRunning, "data")}, []string{claim("FailoverReleased")}},
		"of the second driver":        {about("DPUVolume", "Promoted"), []client.Object{persistent("vol", "vol", kubetest.SecondDriver), pod("p", time.Second, corev1.PodPending, "data")}, []string{claim("Promoted"), ofPod("p")}},
		"none of other reasons":       {about("DPUVolume", "ProvisioningFailed"), []client.Object{pv}, nil},
		"none of other kinds":         {about("DPUStorageNode", "FailoverDetected"), []client.Object{pv}, nil},
		"none without a volume":       {about("DPUVolume", "Promoted"), nil, nil},
		"none if it is unbound":       {about("DPUVolume", "Promoted"), []client.Object{unbound}, nil},
		"none if another's":           {about("DPUVolume", "Promoted"), []client.Object{persistent("vol", "vol", "other")}, nil},
		"none if another volume":      {about("DPUVolume", "Promoted"), []client.Object{persistent("vol", "v2", driver)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := kubetest.New(t)
			for _, o := range append([]client.Object{tc.event}, tc.there...) {
				w.Host.Add(o.DeepCopyObject().(client.Object))
			}
			r := &FailoverReconciler{Clusters: hostclustertest.Clusters(w), Drivers: []string{driver, kubetest.SecondDriver}}
			// Once more, as after a restart: no event is written twice.
			written := 0
			for range 2 {
				written = w.Writes()
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tc.event)}); err != nil {
					t.Fatal(err)
				}
			}
			if n := w.Writes() - written; n != 0 {
				t.Errorf("what was told already was written again: %d writes", n)
			}
			slices.Sort(tc.want)
			if d := cmp.Diff(tc.want, heard(t, w)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestCountsOn: an event that happens again is told again, as one.
func TestCountsOn(t *testing.T) {
	w := kubetest.New(t)
	e := about("DPUVolume", storagev1alpha1.EventFailoverHeld)
	w.Host.Add(e, persistent("vol", "vol", driver))
	r := &FailoverReconciler{Clusters: hostclustertest.Clusters(w), Drivers: []string{driver}}
	for n := int32(1); n <= 3; n++ {
		now, _ := kubetest.Read(w.Host, e)
		now.Count, now.Message = n, strings.Repeat("long ", 300)
		if err := w.Host.Direct.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e)}); err != nil {
			t.Fatal(err)
		}
		got := heard(t, w)
		if len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("FailoverHeld %d: ", n)) || !strings.HasSuffix(got[0], "...") {
			t.Errorf("after %d: %q", n, got)
		}
	}
}

// TestInterruptedTelling: what was lost on the way is told by the next pass.
func TestInterruptedTelling(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, late := range []bool{false, true} {
			w := kubetest.New(t)
			e := about("DPUVolume", storagev1alpha1.EventPromoted)
			w.Host.Add(e, persistent("vol", "vol", driver), pod("p", time.Second, corev1.PodPending, "data"))
			r := &FailoverReconciler{Clusters: hostclustertest.Clusters(w), Drivers: []string{driver}}
			w.LoseWrite(n, late)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e)}); err == nil {
				t.Errorf("write %d was not lost", n)
			}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e)}); err != nil {
				t.Fatal(err)
			}
			if got := heard(t, w); len(got) != 2 {
				t.Errorf("write %d lost (late %v): %q", n, late, got)
			}
		}
	}
}

func TestGoneEvent(t *testing.T) {
	w := kubetest.New(t)
	r := &FailoverReconciler{Clusters: hostclustertest.Clusters(w), Drivers: []string{driver}}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: kubetest.HostNamespace, Name: "e"}}); err != nil {
		t.Fatal(err)
	}
}

// queue takes note of what is put off.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	got []string
}

func (q *queue) AddAfter(r reconcile.Request, d time.Duration) {
	q.got = append(q.got, fmt.Sprintf("%s after %s", r, d))
}

// TestLater: nothing is told at once, nor told again at once, nor when it is gone.
func TestLater(t *testing.T) {
	e, q := about("DPUVolume", "Promoted"), &queue{}
	later().Create(t.Context(), event.CreateEvent{Object: e}, q)
	later().Update(t.Context(), event.UpdateEvent{ObjectOld: e, ObjectNew: e}, q)
	later().Delete(t.Context(), event.DeleteEvent{Object: e}, q)
	if d := cmp.Diff([]string{"users/e after 1s", "users/e after 1s"}, q.got); d != "" {
		t.Error(d)
	}
}

// TestTurns: of many events the first are told at once, and the others a few a second, within a
// minute; those of so many do not hold up what comes later.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, q, h := about("DPUVolume", "Promoted"), &queue{}, later()
		most := burst + perSecond*int(atMost/time.Second)
		for range most + 1000 {
			h.Create(t.Context(), event.CreateEvent{Object: e}, q)
		}
		for i, want := range map[int]string{0: "1s", burst - 1: "1s", burst: "1.5s", burst + 2*perSecond - 1: "3s", most - 1: "1m1s", most + 999: "1m1s"} {
			if got := q.got[i]; got != "users/e after "+want {
				t.Errorf("event %d is put off as %s, want %s", i, got, want)
			}
		}
		time.Sleep(atMost + burst*time.Second/perSecond)
		h.Create(t.Context(), event.CreateEvent{Object: e}, q)
		if got := q.got[len(q.got)-1]; got != "users/e after 1s" {
			t.Errorf("a later one is put off as %s", got)
		}
	})
}

// TestToldByItsController: of several controllers that of the volume's DPU cluster tells.
func TestToldByItsController(t *testing.T) {
	for cluster, want := range map[string]int{"dpf/east": 1, "dpf/west": 0} {
		w := kubetest.New(t)
		v := kubetest.DPUVolume("vol")
		v.Status.State = &storagev1alpha1.DPUVolumeState{DPUCluster: &storagev1alpha1.ObjectReference{Namespace: "dpf", Name: "east"}}
		e := about("DPUVolume", storagev1alpha1.EventFailoverReleased)
		e.InvolvedObject.Namespace = v.Namespace
		w.Host.Add(v, e, persistent("vol", "vol", driver))
		r := &FailoverReconciler{Clusters: hostclustertest.Clusters(w), Drivers: []string{driver}}
		r.Clusters.DPUCluster = cluster
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e)}); err != nil {
			t.Fatal(err)
		}
		if got := heard(t, w); len(got) != want {
			t.Errorf("that of %s tells %q", cluster, got)
		}
	}
}
