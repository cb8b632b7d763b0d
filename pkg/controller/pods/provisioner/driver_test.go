package provisioner

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	"sigs.k8s.io/yaml"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
)

const (
	name     = "pvc-PersistentVolumeClaim-c-1"
	spec     = "{provisioningModes: [Dynamic], volumeCreation: {capacity: 1Gi}, volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: i}]}}, nodeSelector: {disk: fast, arch: arm}}}"
	byPerson = "{provisioningModes: [Static], volumeStaging: {podTemplate: {spec: {containers: [{name: c, image: i}]}}}}"
)

func provisionerOf(t *testing.T, spec string) *pavv1alpha1.PavProvisioner {
	t.Helper()
	p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

type fixture struct {
	*kubetest.Cluster
	d *driver
	t *testing.T
	// meanwhile happens while a call waits.
	meanwhile func()
}

func newFixture(t *testing.T, spec string) *fixture {
	c := kubetest.NewPods(t)
	s := &fixture{Cluster: c, t: t, meanwhile: func() {}}
	s.d = &driver{name: "p", Cluster: c.Cluster, provisioners: &compiled.Store{}, clock: c.Clock, await: s.await}
	c.Add(provisionerOf(t, spec), claim(), kubetest.Node("fast", map[string]string{"disk": "fast", "arch": "arm"}), kubetest.Node("slow", nil))
	return s
}

// await lets happen what happens meanwhile, and ends as if its time were over if that is not enough.
func (s *fixture) await(ctx context.Context, _ string, done func(*moorv1alpha1.PodVolume) bool) error {
	if _, limited := ctx.Deadline(); !limited {
		s.t.Error("a call waits without end")
	}
	if done(s.get()) {
		return nil
	}
	s.meanwhile()
	if done(s.get()) {
		return nil
	}
	return context.DeadlineExceeded
}

func (s *fixture) get() *moorv1alpha1.PodVolume {
	v, found := kubetest.Read(s.Cluster, &moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if !found {
		return nil
	}
	return v
}

func (s *fixture) becomes(phase moorv1alpha1.PodVolumePhase, message string) func() {
	return func() {
		kubetest.Change(s.Cluster, s.get(), func(v *moorv1alpha1.PodVolume) {
			v.Status.Phase, v.Status.Message = phase, message
			if phase == moorv1alpha1.PodVolumeCreated {
				v.Status.Handle, v.Status.CapacityBytes = "h", 2<<30
			}
		})
	}
}

// goes has the PodVolume go, as its reconciler has it.
func (s *fixture) goes() {
	kubetest.Change(s.Cluster, s.get(), func(v *moorv1alpha1.PodVolume) { v.Finalizers = nil })
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "users", Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeBlock), StorageClassName: ptr.To("sc"),
	}}
}

func (s *fixture) options() controller.ProvisionOptions {
	c := claim()
	c.UID = "PersistentVolumeClaim-c-1"
	return controller.ProvisionOptions{PVName: name, PVC: c, StorageClass: &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "sc"}, Provisioner: "p", Parameters: map[string]string{"k": "v"}, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain),
	}}
}

func (s *fixture) provision(want controller.ProvisioningState, words string, change ...func(*controller.ProvisionOptions)) *corev1.PersistentVolume {
	s.t.Helper()
	o := s.options()
	for _, c := range change {
		c(&o)
	}
	pv, state, err := s.d.Provision(s.t.Context(), o)
	if state != want || (words == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), words) {
		s.t.Fatalf("got %s, %v, want %s: %s", state, err, want, words)
	}
	return pv
}

// TestProvision: a volume is asked for once, and its PersistentVolume is made of what came of it, with the
// class's policy and parameters, for the nodes that may stage it.
func TestProvision(t *testing.T) {
	s := newFixture(t, spec)
	s.provision(controller.ProvisioningInBackground, "volume "+name+" is being made")
	v := s.get()
	var kept corev1.PersistentVolumeClaim
	if err := json.Unmarshal(v.Spec.Claim.Raw, &kept); err != nil || kept.UID != "PersistentVolumeClaim-c-1" || v.Finalizers[0] != moorv1alpha1.FinalizerPodVolume {
		t.Errorf("%+v, %v", v, err)
	}
	s.becomes(moorv1alpha1.PodVolumeCreating, "the creation pod waits for an image")()
	s.provision(controller.ProvisioningInBackground, "the creation pod waits for an image")
	s.meanwhile = s.becomes(moorv1alpha1.PodVolumeCreated, "")
	pv := s.provision(controller.ProvisioningFinished, "")
	want := corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		VolumeMode: ptr.To(corev1.PersistentVolumeBlock), PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "p", VolumeHandle: "h", VolumeAttributes: map[string]string{"k": "v"}}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"arm"}}, {Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"fast"}},
		}}}}},
	}
	if diff := cmp.Diff(want, pv.Spec); diff != "" || pv.Name != name {
		t.Errorf("%s: %s", pv.Name, diff)
	}
	if s.get().Annotations[moorv1alpha1.AnnotationOffered] == "" {
		t.Error("it does not say that it was offered")
	}
	s.provision(controller.ProvisioningFinished, "") // as after a restart
	if n := s.WritesOn(&moorv1alpha1.PodVolume{}); n != 2 {
		t.Errorf("%d writes", n)
	}
}

// TestProvisionAgain: a failure is told, and makes room for another try once the user has had time to read
// it, also with an instance that does not know that it was told. A call that comes before, as the library
// calls again at once if the claim was looked at while a call for it ran, only tells it again.
func TestProvisionAgain(t *testing.T) {
	s := newFixture(t, spec)
	s.meanwhile = func() {
		if s.get().Status.Phase == "" {
			s.becomes(moorv1alpha1.PodVolumeFailed, "no such bucket")()
		}
	}
	s.provision(controller.ProvisioningFinished, "no such bucket")
	first := s.get().UID
	s.d = &driver{name: "p", Cluster: s.Cluster.Cluster, provisioners: &compiled.Store{}, clock: s.Clock, await: s.await}
	s.provision(controller.ProvisioningFinished, "no such bucket")
	s.provision(controller.ProvisioningFinished, "no such bucket")
	s.Step(firstRetry - time.Nanosecond)
	s.provision(controller.ProvisioningFinished, "no such bucket")
	if v := s.get(); v.UID != first || !v.DeletionTimestamp.IsZero() {
		t.Fatal("it is tried again at once")
	}
	s.Step(time.Nanosecond)
	s.provision(controller.ProvisioningInBackground, "is made again, as it has failed: no such bucket")
	if s.get().DeletionTimestamp.IsZero() {
		t.Error("the failed one is not deleted")
	}
	s.meanwhile = func() {}
	s.provision(controller.ProvisioningInBackground, "what an earlier try has left of volume")
	s.meanwhile = s.goes
	s.provision(controller.ProvisioningInBackground, "is not there yet")
	s.meanwhile = func() { s.becomes(moorv1alpha1.PodVolumeCreated, "")() }
	s.provision(controller.ProvisioningFinished, "")
	if s.get().UID == first {
		t.Error("it is the same")
	}
}

// TestRefused: what cannot be had is refused in words, and no PodVolume is made.
func TestRefused(t *testing.T) {
	for title, tt := range map[string]struct {
		spec   string
		before func(*fixture)
		change func(*controller.ProvisionOptions)
		state  controller.ProvisioningState
		words  string
	}{
		"without Dynamic":                   {byPerson, nil, nil, controller.ProvisioningFinished, "provisioningModes are without Dynamic"},
		"no provisioner":                    {spec, func(s *fixture) { s.Remove(provisionerOf(s.t, spec)) }, nil, controller.ProvisioningFinished, "PavProvisioner p does not exist"},
		"a provisioner that is wrong":       {strings.Replace(spec, "image: i", "image: '{{'", 1), nil, nil, controller.ProvisioningFinished, "PavProvisioner p cannot be used: spec.volumeStaging"},
		"a selector":                        {spec, nil, func(o *controller.ProvisionOptions) { o.PVC.Spec.Selector = &metav1.LabelSelector{} }, controller.ProvisioningFinished, "spec.selector"},
		"a copy":                            {spec, nil, func(o *controller.ProvisionOptions) { o.PVC.Spec.DataSource = &corev1.TypedLocalObjectReference{} }, controller.ProvisioningFinished, "spec.dataSource"},
		"a node that does not stage":        {spec, nil, func(o *controller.ProvisionOptions) { o.SelectedNodeName = "slow" }, controller.ProvisioningReschedule, "does not stage volumes on node slow"},
		"a claim that is gone":              {spec, func(s *fixture) { s.Remove(claim()) }, nil, controller.ProvisioningFinished, "claim users/c is gone"},
		"a claim that another has replaced": {spec, func(s *fixture) { s.Remove(claim()); s.Add(claim()) }, nil, controller.ProvisioningFinished, "claim users/c is gone"},
	} {
		t.Run(title, func(t *testing.T) {
			s := newFixture(t, tt.spec)
			if tt.before != nil {
				tt.before(s)
			}
			if tt.change == nil {
				tt.change = func(*controller.ProvisionOptions) {}
			}
			s.provision(tt.state, tt.words, tt.change)
			if s.get() != nil {
				t.Errorf("%+v was made", s.get())
			}
		})
	}
	s := newFixture(t, spec)
	s.provision(controller.ProvisioningInBackground, "is being made", func(o *controller.ProvisionOptions) { o.SelectedNodeName = "fast" })
}

// TestDelete: a volume is removed before its PersistentVolume, and one of a person's is not.
func TestDelete(t *testing.T) {
	pv := func(handle string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "p", VolumeHandle: handle}},
		}}
	}
	s := newFixture(t, spec)
	s.meanwhile = func() { s.becomes(moorv1alpha1.PodVolumeCreated, "")() }
	s.provision(controller.ProvisioningFinished, "")
	want := func(handle, words string) {
		t.Helper()
		err := s.d.Delete(t.Context(), pv(handle))
		if (words == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
	}
	want("another", "")
	if !s.get().DeletionTimestamp.IsZero() {
		t.Fatal("it was deleted for another")
	}
	s.meanwhile = func() {}
	want("h", "is being removed")
	s.becomes(moorv1alpha1.PodVolumeDeleting, "the deletion pod waits")()
	want("h", "is being removed: the deletion pod waits")
	s.becomes(moorv1alpha1.PodVolumeDeletionFailed, "no key")()
	kubetest.Change(s.Cluster, s.get(), func(v *moorv1alpha1.PodVolume) { v.Status.Handle = "h" })
	want("h", "no key. It is tried again by itself, later and later, and at once by: kubectl annotate podvolume "+name)
	s.becomes(moorv1alpha1.PodVolumeDeleting, "")()
	s.meanwhile = s.goes
	want("h", "")
	want("h", "")
}

// TestOffered: a volume that is given up meanwhile is not offered.
func TestOffered(t *testing.T) {
	s := newFixture(t, spec)
	s.provision(controller.ProvisioningInBackground, "is being made")
	s.becomes(moorv1alpha1.PodVolumeCreated, "")()
	old := s.get()
	s.Remove(s.get())
	s.CacheShows(old)
	if pv, _, err := s.d.Provision(t.Context(), s.options()); pv != nil || err == nil {
		t.Errorf("%v was offered: %v", pv, err)
	}
	s.Step(time.Second)
}
