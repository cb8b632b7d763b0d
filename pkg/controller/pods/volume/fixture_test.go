package volume

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

const (
	claimName = "c"
	uid       = types.UID("PersistentVolumeClaim-c-1")
	volume    = "pvc-PersistentVolumeClaim-c-1"

	plain = `
provisioningModes: [Dynamic]
volumeCreation: {capacity: "{{ requestedMinCapacity }}"}
volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: i}]}}}
`
	all = `
provisioningModes: [Dynamic]
volumeValidation: {podTemplate: {spec: {containers: [{name: c, image: validates}]}}, timeout: 1m}
volumeCreation: {capacity: "{{ requestedMinCapacity }}", podTemplate: {metadata: {namespace: secrets}, spec: {containers: [{name: c, image: creates}]}}, timeout: 2m}
volumeDeletion: {podTemplate: {spec: {containers: [{name: c, image: deletes}]}}}
volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: i}]}}}
`
)

// behavior is what the pods of a phase do: "ok" is the default; "fail", "hang", "vanish", or a handle that
// they leave.
type behavior map[pods.Phase]string

type fixture struct {
	*kubetest.Cluster
	r    *Reconciler
	t    *testing.T
	does behavior
	made []string // phases of the pods that were made, in their order
	name string   // of the pod that was made last
}

func newFixture(t *testing.T, spec string, does behavior) *fixture {
	t.Helper()
	c := kubetest.NewPods(t)
	s := &fixture{Cluster: c, t: t, does: does}
	s.restart()
	c.AfterWrite(func(verb string, o client.Object) {
		if pod, is := o.(*corev1.Pod); is && verb == "create" {
			s.made = append(s.made, pod.Labels[moorv1alpha1.LabelHelperPhase])
			s.name = pod.Name
		}
	})
	p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	c.Add(p, kubetest.Node("n", nil), claimOf("1Gi"))
	return s
}

// restart has another instance go on, which remembers nothing.
func (s *fixture) restart() {
	s.r = &Reconciler{
		Cluster: s.Cluster.Cluster, Pods: helper.Pods{Cluster: s.Cluster.Cluster, Root: "/root"}, Provisioners: &compiled.Store{}, Clock: s.Clock, Recorder: s.Recorder,
	}
}

func claimOf(size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "users", Name: claimName}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
	}}
}

// podVolume is that of the claim.
func podVolume(change ...func(*corev1.PersistentVolumeClaim, *storagev1.StorageClass)) *moorv1alpha1.PodVolume {
	claim, class := claimOf("1Gi"), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "sc"}, Provisioner: "p"}
	claim.UID = uid
	for _, c := range change {
		c(claim, class)
	}
	raw := func(o any) runtime.RawExtension {
		content, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		return runtime.RawExtension{Raw: content}
	}
	return &moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: moorv1alpha1.PodVolumeSpec{ProvisionerName: "p", Claim: raw(claim), Class: raw(class)}}
}

func (s *fixture) pass() (ctrl.Result, error) {
	return s.r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: volume}})
}

func (s *fixture) get() *moorv1alpha1.PodVolume {
	v, found := kubetest.Read(s.Cluster, &moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}})
	if !found {
		return nil
	}
	return v
}

// world lets kubelet and pod-provisioner (node) do their part, and reports whether there was any.
func (s *fixture) world() (did bool) {
	var all corev1.PodList
	if err := s.Direct.List(s.t.Context(), &all); err != nil {
		s.t.Fatal(err)
	}
	for i := range all.Items {
		pod := &all.Items[i]
		does := s.does[pods.Phase(pod.Labels[moorv1alpha1.LabelHelperPhase])]
		v := s.get()
		if v == nil || v.Status.Pod == nil || v.Status.Pod.UID != pod.UID || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || does == "hang" {
			continue
		}
		did = true
		if does == "vanish" {
			s.Remove(pod)
			continue
		}
		report := &moorv1alpha1.PodReport{PodUID: pod.UID}
		kubetest.Change(s.Cluster, pod, func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Phase = "n", corev1.PodSucceeded
			if does == "fail" {
				p.Status.Phase, report.Error = corev1.PodFailed, "words of "+p.Labels[moorv1alpha1.LabelHelperPhase]
			}
		})
		if does != "" && does != "ok" && does != "fail" {
			report.Handle = ptr.To(strings.TrimPrefix(does, "handle="))
		}
		kubetest.Change(s.Cluster, v, func(v *moorv1alpha1.PodVolume) { v.Status.Report = report })
	}
	return did
}

// settle goes on until nothing is written any more. It reports whether a write was lost.
func (s *fixture) settle() (lost bool) {
	s.t.Helper()
	for range 100 {
		before := s.Writes()
		if _, err := s.pass(); err != nil {
			switch {
			case strings.Contains(err.Error(), kubetest.ErrLost.Error()):
				lost = true
				s.restart()
			case !apierrors.IsConflict(err):
				s.t.Fatal(err)
			}
			continue
		}
		if !s.world() && s.Writes() == before {
			return lost
		}
	}
	s.t.Fatalf("does not settle: %+v", s.get())
	return lost
}

// pods are the pods that are there.
func (s *fixture) pods() int {
	var all corev1.PodList
	if err := s.Direct.List(s.t.Context(), &all); err != nil {
		s.t.Fatal(err)
	}
	return len(all.Items)
}

// ran are the phases whose pods were made.
func (s *fixture) ran() string { return strings.Join(slices.Compact(slices.Clone(s.made)), " ") }

func (s *fixture) remove() {
	s.Remove(&moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}})
}

func (s *fixture) wantPhase(want moorv1alpha1.PodVolumePhase) {
	s.t.Helper()
	if v := s.get(); v == nil && want != "" || v != nil && v.Status.Phase != want {
		s.t.Errorf("got %+v, want phase %q", v, want)
	}
}
