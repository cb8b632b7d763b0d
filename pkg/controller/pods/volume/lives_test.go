package volume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// life is a PodVolume that is made, and deleted once it has come to rest.
type life struct {
	spec string
	does behavior
	// change is of the request.
	change func(*corev1.PersistentVolumeClaim, *storagev1.StorageClass)
	// comes is the phase to which it comes, and words what its message has.
	comes moorv1alpha1.PodVolumePhase
	words string
	// handle it has if it is Created.
	handle string
	// goes is the phase in which it stays after its deletion; empty if it goes.
	goes moorv1alpha1.PodVolumePhase
	// ran are the pods of the whole life.
	ran string
}

var lives = map[string]life{
	"without pods it is there at once":                            {plain, nil, nil, "Created", "", volume, "", ""},
	"validation, creation and deletion pods run in order":         {all, nil, nil, "Created", "", volume, "", "validation creation deletion"},
	"the creation pod gives the handle":                           {all, behavior{pods.Creation: "handle=h"}, nil, "Created", "", "h", "", "validation creation deletion"},
	"an empty handle is an error, and what was made is removed":   {all, behavior{pods.Creation: "handle="}, nil, "Failed", "empty /pav/handle", "", "", "validation creation deletion"},
	"a validation pod that fails ends it, and nothing is removed": {all, behavior{pods.Validation: "fail"}, nil, "Failed", "the validation pod default/pav-volume-validation-pod-" + string(uid) + " failed: words of validation", "", "", "validation"},
	"a creation pod that fails is followed by the deletion pod":   {all, behavior{pods.Creation: "fail"}, nil, "Failed", "the creation pod secrets/pav-volume-creation-pod-" + string(uid) + " failed: words of creation", "", "", "validation creation deletion"},
	"a creation pod that another deletes has failed":              {all, behavior{pods.Creation: "vanish"}, nil, "Failed", "was deleted by another", "", "", "validation creation deletion"},
	"a failed creation that cannot be undone waits":               {all, behavior{pods.Creation: "fail", pods.Deletion: "fail"}, nil, "DeletionFailed", "words of creation; what it has left could not be undone: ", "", "DeletionFailed", "validation creation deletion"},
	"a deletion pod that fails is not tried again by itself":      {all, behavior{pods.Deletion: "fail"}, nil, "Created", "", volume, "DeletionFailed", "validation creation deletion"},
	"a mode that is not supported is refused without a pod": {all, nil, func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
		c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	}, "Failed", "provisioner p supports volumeMode Filesystem, and Block is asked for", "", "", ""},
	"an access mode that is not supported is refused without a pod": {all, nil, func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}, "Failed", "ReadWriteOncePod is asked for", "", "", ""},
	"mount options are refused without a pod": {
		all, nil, func(_ *corev1.PersistentVolumeClaim, c *storagev1.StorageClass) { c.MountOptions = []string{"ro"} },
		"Failed", "mountOptions are not for it", "", "", "",
	},
	"templates of validation that fail end it":                         {strings.Replace(all, "image: validates", "image: '{{ nothing.there }}'", 1), nil, nil, "Failed", "volumeValidation", "", "", ""},
	"templates of creation that fail are followed by the deletion pod": {strings.Replace(all, "image: creates", "image: '{{ nothing.there }}'", 1), nil, nil, "Failed", "the volume cannot be made: ", "", "", "validation deletion"},
	"templates of deletion that fail wait for a person":                {strings.Replace(all, "image: deletes", "image: '{{ nothing.there }}'", 1), nil, nil, "Created", "", volume, "DeletionFailed", "validation creation"},
	"a size that is too small is an error":                             {strings.Replace(plain, "{{ requestedMinCapacity }}", "1Mi", 1), nil, nil, "Failed", "at least 1073741824 are asked for", "", "", ""},
}

func (l life) begins(t *testing.T) *fixture {
	s := newFixture(t, l.spec, l.does)
	change := l.change
	if change == nil {
		change = func(*corev1.PersistentVolumeClaim, *storagev1.StorageClass) {}
	}
	s.Add(podVolume(change))
	return s
}

// comesToRest checks the volume before its deletion.
func (l life) comesToRest(s *fixture) {
	s.t.Helper()
	v := s.get()
	if v == nil || v.Status.Phase != l.comes || !strings.Contains(v.Status.Message, l.words) || v.Status.Handle != l.handle || v.Status.Pod != nil || s.pods() != 0 {
		s.t.Fatalf("%d pods, and %+v", s.pods(), v)
	}
	if l.comes == "Created" && (v.Status.CapacityBytes != 1<<30 || v.Status.Message != "") {
		s.t.Errorf("%+v", v.Status)
	}
}

// ends checks what is left after the deletion.
func (l life) ends(s *fixture) {
	s.t.Helper()
	if s.wantPhase(l.goes); s.pods() != 0 {
		s.t.Errorf("%d pods are left", s.pods())
	}
	if l.goes == "" && s.get() != nil {
		s.t.Errorf("%+v is left", s.get())
	}
	if s.ran() != l.ran {
		s.t.Errorf("the pods were %q, want %q", s.ran(), l.ran)
	}
}

func TestLives(t *testing.T) {
	for name, l := range lives {
		t.Run(name, func(t *testing.T) {
			s := l.begins(t)
			s.settle()
			l.comesToRest(s)
			writes, reads := s.Writes(), s.LiveReads()
			for range 3 {
				var again time.Duration
				if v := s.get(); v.Status.Phase == moorv1alpha1.PodVolumeDeletionFailed {
					again = 5 * time.Second
				}
				if result, err := s.pass(); err != nil || result.RequeueAfter != again {
					t.Error(result, err)
				}
			}
			if s.Writes() != writes || s.LiveReads() != reads {
				t.Errorf("at rest, %d writes and %d reads of the API server", s.Writes()-writes, s.LiveReads()-reads)
			}
			s.remove()
			s.settle()
			l.ends(s)
		})
	}
}

// TestCrash loses each write of some lives in turn, with and without effect, and goes on with an
// instance that remembers nothing: it comes to the same, and leaves nothing behind.
func TestCrash(t *testing.T) {
	for _, name := range []string{
		"without pods it is there at once", "the creation pod gives the handle", "a creation pod that another deletes has failed",
		"a failed creation that cannot be undone waits", "a deletion pod that fails is not tried again by itself",
		"templates of creation that fail are followed by the deletion pod",
	} {
		l, known := lives[name]
		if !known {
			t.Fatalf("there is no life %q", name)
		}
		t.Run(name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				for k := 1; ; k++ {
					s := l.begins(t)
					s.LoseWrite(k, late)
					lost := s.settle()
					l.comesToRest(s)
					s.remove()
					if lost = s.settle() || lost; !lost {
						if k < 4 {
							t.Errorf("only %d writes were lost", k-1)
						}
						break
					}
					l.ends(s)
				}
			}
		})
	}
}

// TestInterrupted: a volume that is deleted before it is made is undone as far as it was.
func TestInterrupted(t *testing.T) {
	for name, tt := range map[string]struct {
		hangs pods.Phase
		ran   string
	}{
		"while it is validated":  {pods.Validation, "validation"},
		"while it is being made": {pods.Creation, "validation creation deletion"},
	} {
		t.Run(name, func(t *testing.T) {
			for passes := range 12 {
				s := newFixture(t, all, behavior{tt.hangs: "hang"})
				s.Add(podVolume())
				for range passes {
					if _, err := s.pass(); err != nil {
						t.Fatal(err)
					}
					s.world()
				}
				s.remove()
				s.settle()
				if s.get() != nil || s.pods() != 0 || !strings.HasPrefix(tt.ran, s.ran()) {
					t.Errorf("after %d passes: %+v is left, %d pods; pods %q", passes, s.get(), s.pods(), s.ran())
				}
				if passes == 11 && s.ran() != tt.ran {
					t.Errorf("the pods were %q, want %q", s.ran(), tt.ran)
				}
			}
		})
	}
}

// TestProvisionerGoes: a provisioner that is being deleted makes no volume any more, and removes those
// that are there.
func TestProvisionerGoes(t *testing.T) {
	for name, tt := range map[string]struct {
		does behavior
		want moorv1alpha1.PodVolumePhase
	}{
		"while a volume is being made": {behavior{pods.Creation: "hang"}, ""},
		"a volume has failed":          {behavior{pods.Creation: "fail"}, ""},
		"a volume is there":            {nil, "Created"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, all, tt.does)
			s.Add(podVolume())
			s.settle()
			p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			kubetest.Change(s.Cluster, p, func(p *pavv1alpha1.PavProvisioner) { p.Finalizers = []string{pavv1alpha1.FinalizerProvisioner} })
			s.Remove(p)
			s.settle()
			if s.wantPhase(tt.want); tt.want == "" && s.get() != nil {
				t.Errorf("%+v is left", s.get().Status)
			}
			if tt.want != "" {
				s.remove()
				s.settle()
			}
			if s.get() != nil || s.ran() != "validation creation deletion" {
				t.Errorf("%+v is left; pods %q", s.get(), s.ran())
			}
		})
	}
}

// TestProvisionerMissing: without its provisioner a volume waits in words, and goes on when it is back.
func TestProvisionerMissing(t *testing.T) {
	s := newFixture(t, all, nil)
	p, _ := kubetest.Read(s.Cluster, &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	s.Remove(p)
	s.Add(podVolume())
	s.settle()
	if v := s.get(); v.Status.Phase != "" || !strings.Contains(v.Status.Message, "PavProvisioner p does not exist") {
		t.Errorf("%+v", v.Status)
	}
	s.Add(&pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: p.Spec})
	s.settle()
	s.wantPhase(moorv1alpha1.PodVolumeCreated)
}

// TestStagedIsKept: a volume that is staged is not removed under its pod.
func TestStagedIsKept(t *testing.T) {
	s := newFixture(t, all, nil)
	s.Add(podVolume())
	s.settle()
	staging := &moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: moorv1alpha1.PodStagingSpec{
		ProvisionerName: "p", VolumeName: volume, NodeName: "n", User: moorv1alpha1.StagingUser{Namespace: "users", Name: "app", UID: "1"},
	}}
	s.Add(staging)
	s.remove()
	s.settle()
	if v := s.get(); v.Status.Phase != moorv1alpha1.PodVolumeCreated || v.Status.Message != "the volume is in use: pod users/app has it on node n" {
		t.Errorf("%+v", v.Status)
	}
	s.Remove(staging)
	s.settle()
	if s.get() != nil || s.ran() != "validation creation deletion" {
		t.Errorf("%+v is left; pods %q", s.get(), s.ran())
	}
}

// TestTimeout: a pod that does not come to an end has failed after the time of its phase, in words.
func TestTimeout(t *testing.T) {
	s := newFixture(t, all, behavior{pods.Creation: "hang"})
	s.Add(podVolume())
	s.settle()
	if result, err := s.pass(); err != nil || result.RequeueAfter != 2*time.Minute {
		t.Errorf("looks again after %s: %v", result.RequeueAfter, err)
	}
	s.Step(2 * time.Minute)
	s.settle()
	if v := s.get(); v.Status.Phase != moorv1alpha1.PodVolumeFailed || !strings.Contains(v.Status.Message, "has not ended within 2m0s: it is not scheduled") {
		t.Errorf("%+v", v.Status)
	}
}

// TestOldCache: by an old reading of a volume no pod is made, and none is deleted.
func TestOldCache(t *testing.T) {
	s := newFixture(t, all, behavior{pods.Creation: "hang"})
	s.Add(podVolume())
	var old []*moorv1alpha1.PodVolume
	for range 12 {
		if _, err := s.pass(); err != nil {
			t.Fatal(err)
		}
		old = append(old, s.get())
		s.world()
	}
	made, there := len(s.made), s.pods()
	for _, v := range old {
		s.CacheShows(v)
		if _, err := s.pass(); err != nil && !apierrors.IsConflict(err) {
			t.Error(err)
		}
	}
	if len(s.made) != made || s.pods() != there || made != 2 || there != 1 {
		t.Errorf("pods %q were made, and %d are there", s.made, s.pods())
	}
}

// TestAbandoned: a volume whose claim has gone is given up, unless a PersistentVolume was made.
func TestAbandoned(t *testing.T) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}
	for name, tt := range map[string]struct {
		does    behavior
		offered bool
		pv      bool
		want    moorv1alpha1.PodVolumePhase
		ran     string
	}{
		"being made":                          {behavior{pods.Creation: "hang"}, false, false, "", "validation creation deletion"},
		"failed":                              {behavior{pods.Creation: "fail"}, false, false, "", "validation creation deletion"},
		"made, and never offered":             {nil, false, false, "", "validation creation deletion"},
		"made, with a PersistentVolume":       {nil, true, true, "Created", "validation creation"},
		"retained, and its volume is removed": {nil, true, false, "Created", "validation creation"},
		"a person is waited for":              {behavior{pods.Creation: "fail", pods.Deletion: "fail"}, false, false, "DeletionFailed", "validation creation deletion"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, all, tt.does)
			s.Add(podVolume())
			s.settle()
			if tt.offered {
				kubetest.Change(s.Cluster, s.get(), func(v *moorv1alpha1.PodVolume) {
					v.Annotations = map[string]string{moorv1alpha1.AnnotationOffered: "true"}
				})
			}
			if tt.pv {
				s.Add(pv.DeepCopy())
			}
			s.Remove(claimOf("1Gi"))
			s.settle()
			s.wantPhase(tt.want)
			if tt.want == "" && s.get() != nil || s.ran() != tt.ran {
				t.Errorf("%+v is left; pods %q", s.get(), s.ran())
			}
			if kept := strings.Contains(message(s.get()), "the data is kept"); kept != (tt.offered && !tt.pv) {
				t.Errorf("the message is %q", message(s.get()))
			}
		})
	}
}

func message(v *moorv1alpha1.PodVolume) string {
	if v == nil {
		return ""
	}
	return v.Status.Message
}
