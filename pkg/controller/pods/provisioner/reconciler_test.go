package provisioner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
)

// served notes which provisioners have a controller.
type served map[string]bool

func (s served) serve(_ context.Context, name string) error { s[name] = true; return nil }

func (s served) stop(name string) { delete(s, name) }

type world struct {
	*kubetest.Cluster
	r      *Reconciler
	serves served
	t      *testing.T
}

func newWorld(t *testing.T, spec string, more ...client.Object) *world {
	s := &world{Cluster: kubetest.NewPods(t), serves: served{}, t: t}
	s.r = &Reconciler{Cluster: s.Cluster.Cluster, Provisioners: &compiled.Store{}, serves: s.serves}
	s.Add(provisionerOf(t, spec))
	s.Add(more...)
	return s
}

func (s *world) pass() error {
	_, err := s.r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "p"}})
	return err
}

func (s *world) settle() (lost bool) {
	s.t.Helper()
	for range 30 {
		before := s.Writes()
		if err := s.pass(); err != nil {
			if lost = lost || errors.Is(err, kubetest.ErrLost); !lost && !apierrors.IsConflict(err) {
				s.t.Fatal(err)
			}
			continue
		}
		if s.Writes() == before {
			return lost
		}
	}
	s.t.Fatal("does not settle")
	return lost
}

func (s *world) get() *pavv1alpha1.PavProvisioner {
	p, found := kubetest.Read(s.Cluster, &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	if !found {
		return nil
	}
	return p
}

// ready is the condition, as text.
func (s *world) ready() string {
	return strings.Join(kubetest.Conditions(s.get().Status.Conditions, pavv1alpha1.ConditionReady), "")
}

func volumeIn(name string, phase moorv1alpha1.PodVolumePhase) *moorv1alpha1.PodVolume {
	raw := runtime.RawExtension{Raw: []byte("{}")}
	return &moorv1alpha1.PodVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: moorv1alpha1.PodVolumeSpec{ProvisionerName: "p", Claim: raw, Class: raw},
		Status: moorv1alpha1.PodVolumeStatus{Phase: phase},
	}
}

func stagingIn(name string, phase moorv1alpha1.PodStagingPhase) *moorv1alpha1.PodStaging {
	return &moorv1alpha1.PodStaging{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: moorv1alpha1.PodStagingSpec{ProvisionerName: "p", VolumeName: "v", NodeName: "n"},
		Status: moorv1alpha1.PodStagingStatus{Phase: phase},
	}
}

func pvOf(name string) *corev1.PersistentVolume {
	pv := kubetest.PV(name, "", "h")
	pv.Spec.CSI.Driver = "p"
	return pv
}

// TestServed: the driver, the condition and the counts of a provisioner, and whether it has a controller.
func TestServed(t *testing.T) {
	foreign := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for title, tt := range map[string]struct {
		spec   string
		more   []client.Object
		ready  string
		driver bool // made
		served bool
		counts [4]int32
	}{
		"of volumes for claims": {spec, nil, "Ready=True/Ready", true, true, [4]int32{}},
		"of volumes by hand":    {byPerson, nil, "Ready=True/Ready", true, true, [4]int32{}},
		"that is wrong":         {strings.Replace(spec, "image: i", "image: '{{'", 1), nil, "Ready=False/Invalid: spec.volumeStaging.podTemplate.spec.containers[0].image", false, true, [4]int32{}},
		"whose driver is taken": {spec, []client.Object{foreign}, "Ready=False/DriverTaken: CSIDriver p belongs to another", false, false, [4]int32{}},
		"with volumes": {spec, []client.Object{
			volumeIn("a", moorv1alpha1.PodVolumeCreated), volumeIn("b", moorv1alpha1.PodVolumeDeletionFailed), volumeIn("c", moorv1alpha1.PodVolumeFailed), volumeIn("d", ""),
			stagingIn("a", moorv1alpha1.PodStagingStaged), stagingIn("b", moorv1alpha1.PodStagingUnstagingFailed), stagingIn("c", moorv1alpha1.PodStagingFailed),
		}, "Ready=True/Ready", true, true, [4]int32{3, 1, 2, 1}},
	} {
		t.Run(title, func(t *testing.T) {
			s := newWorld(t, tt.spec, tt.more...)
			s.settle()
			st := s.get().Status
			if got := s.ready(); !strings.HasPrefix(got, tt.ready) || s.serves["p"] != tt.served || [4]int32{st.Volumes, st.FailedVolumes, st.Stagings, st.FailedStagings} != tt.counts {
				t.Errorf("%s, served %v, %+v", got, s.serves["p"], st)
			}
			d := &storagev1.CSIDriver{}
			if made := s.Has(d, "p") && metav1.IsControlledBy(d, s.get()); made != tt.driver {
				t.Errorf("the driver was made: %v", made)
			}
			if tt.driver && (*d.Spec.AttachRequired || !*d.Spec.PodInfoOnMount || !slices.Equal(d.Spec.VolumeLifecycleModes, []storagev1.VolumeLifecycleMode{"Persistent"})) {
				t.Errorf("%+v", d.Spec)
			}
			writes, reads := s.Writes(), s.LiveReads()
			if s.settle(); s.Writes() != writes || s.LiveReads() != reads {
				t.Error("at rest, it reads or writes")
			}
		})
	}
}

// TestVouches: the driver says that the storage revokes DPUs while the provisioner has a pod for that, and only then.
func TestVouches(t *testing.T) {
	revokes := strings.TrimSuffix(strings.TrimSpace(spec), "}") + ", volumeRevocation: {podTemplate: {spec: {containers: [{name: c, image: i}]}}}}"
	is := func(s *world) bool {
		d := &storagev1.CSIDriver{}
		s.Get(d, "p")
		return d.Annotations[storagev1alpha1.AnnotationRevokes] == "true"
	}
	change := func(s *world, to string) {
		kubetest.Change(s.Cluster, s.get(), func(p *pavv1alpha1.PavProvisioner) {
			p.Spec = provisionerOf(t, to).Spec
			p.Generation++
		})
		s.settle()
	}
	s := newWorld(t, revokes)
	if s.settle(); !is(s) {
		t.Error("a new one does not vouch")
	}
	writes := s.Writes()
	if s.settle(); s.Writes() != writes {
		t.Error("at rest, it writes")
	}
	for _, step := range []struct {
		spec string
		want bool
	}{{spec, false}, {revokes, true}, {strings.Replace(revokes, "volumeRevocation: {podTemplate: {spec: {containers: [{name: c, image: i", "volumeRevocation: {podTemplate: {spec: {containers: [{name: c, image: '{{'", 1), false}} {
		if change(s, step.spec); is(s) != step.want {
			t.Errorf("with %s: vouches %v", step.spec, is(s))
		}
	}
	foreign := newWorld(t, revokes, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	if foreign.settle(); is(foreign) {
		t.Error("another's driver vouches")
	}
}

// TestDeletedWhenUnused: a provisioner stays while there is a volume or staging of it, and says so; then it
// goes with its driver, its controller first.
func TestDeletedWhenUnused(t *testing.T) {
	s := newWorld(t, spec, volumeIn("a", moorv1alpha1.PodVolumeCreated), pvOf("a"), pvOf("b"), pvOf("c"), pvOf("d"), stagingIn("s", moorv1alpha1.PodStagingStaged))
	s.settle()
	s.Remove(provisionerOf(t, spec))
	for _, step := range []struct {
		names  string
		remove []client.Object
	}{
		{"1 PodVolumes (a), 4 PersistentVolumes (a, b, c, ...), 1 PodStagings (s)", []client.Object{pvOf("b"), pvOf("c"), pvOf("d")}},
		{"1 PodVolumes (a), 1 PersistentVolumes (a), 1 PodStagings (s)", []client.Object{stagingIn("s", ""), pvOf("a")}},
		{"1 PodVolumes (a) of it", []client.Object{volumeIn("a", "")}},
	} {
		s.settle()
		if got := s.ready(); !strings.HasPrefix(got, "Ready=False/InUse") || !strings.Contains(got, step.names) || !s.serves["p"] {
			t.Errorf("%s, served %v", got, s.serves["p"])
		}
		s.Remove(step.remove...)
	}
	s.settle()
	if s.get() != nil || s.Has(&storagev1.CSIDriver{}, "p") || s.serves["p"] {
		t.Errorf("%+v is left, served %v", s.get(), s.serves["p"])
	}
}

// TestForeignDriverStays: the driver of another does not go with a provisioner of its name.
func TestForeignDriverStays(t *testing.T) {
	s := newWorld(t, spec, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	s.settle()
	s.Remove(provisionerOf(t, spec))
	s.settle()
	if s.get() != nil || !s.Has(&storagev1.CSIDriver{}, "p") {
		t.Errorf("%+v is left, the driver %v", s.get(), s.Has(&storagev1.CSIDriver{}, "p"))
	}
}

// TestOldCacheReleasesNothing: a volume that the cache does not show keeps its provisioner.
func TestOldCacheReleasesNothing(t *testing.T) {
	s := newWorld(t, spec, volumeIn("a", moorv1alpha1.PodVolumeCreated))
	s.settle()
	s.Remove(provisionerOf(t, spec))
	s.CacheLists(&moorv1alpha1.PodVolumeList{})
	s.settle()
	if s.get() == nil {
		t.Fatal("it is gone, and a volume of it is there")
	}
	s.CacheIsCurrent()
	if s.settle(); !s.serves["p"] {
		t.Error("it is not served any more")
	}
}

// TestCrash loses each write in turn, with and without effect: it comes to the same.
func TestCrash(t *testing.T) {
	for _, late := range []bool{false, true} {
		for k := 1; ; k++ {
			s := newWorld(t, spec)
			s.LoseWrite(k, late)
			lost := s.settle()
			if got := s.ready(); got != "Ready=True/Ready" || !s.Has(&storagev1.CSIDriver{}, "p") {
				t.Errorf("late %v, write %d: %s", late, k, got)
			}
			s.Remove(provisionerOf(t, spec))
			if lost = s.settle() || lost; s.get() != nil || s.Has(&storagev1.CSIDriver{}, "p") || s.serves["p"] {
				t.Errorf("late %v, write %d: %+v is left", late, k, s.get())
			}
			if !lost {
				if k < 5 {
					t.Errorf("only %d writes were lost", k-1)
				}
				break
			}
		}
	}
}
