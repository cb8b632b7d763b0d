package volume

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// newStuck has a volume that was deleted, and whose deletion has failed.
func newStuck(t *testing.T, does behavior) *fixture {
	t.Helper()
	s := newFixture(t, all, does)
	s.Add(podVolume())
	s.settle()
	s.remove()
	s.settle()
	s.wantPhase(moorv1alpha1.PodVolumeDeletionFailed)
	return s
}

// TestRetry: each new value of the annotation begins a deletion that failed again, once.
func TestRetry(t *testing.T) {
	for name, does := range map[string]behavior{"of a volume": {pods.Deletion: "fail"}, "of a failed creation": {pods.Creation: "fail", pods.Deletion: "fail"}} {
		t.Run(name, func(t *testing.T) {
			s := newStuck(t, does)
			retry := func(value string) {
				kubetest.Change(s.Cluster, s.get(), func(v *moorv1alpha1.PodVolume) {
					v.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: value}
				})
				s.settle()
			}
			n := len(s.made)
			first := s.name
			retry("1")
			retry("1")
			if s.name == first {
				t.Errorf("the pod %s of another try has the name, and the directory, of the one before", first)
			}
			s.wantPhase(moorv1alpha1.PodVolumeDeletionFailed)
			if len(s.made) != n+1 {
				t.Errorf("%d deletion pods for one value", len(s.made)-n)
			}
			delete(s.does, pods.Deletion)
			retry("2")
			if s.get() != nil || s.pods() != 0 {
				t.Errorf("%+v is left, and %d pods", s.get(), s.pods())
			}
		})
	}
}

// TestRetriedByItself: a deletion that failed is tried again by itself, each time later, by a pod of its own name. A
// person who asks has it begin anew.
func TestRetriedByItself(t *testing.T) {
	for title, does := range map[string]behavior{"of a volume": {pods.Deletion: "fail"}, "of a failed creation": {pods.Creation: "fail", pods.Deletion: "fail"}} {
		t.Run(title, func(t *testing.T) {
			s := newStuck(t, does)
			names := map[string]bool{s.name: true}
			for i, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 5 * time.Second, 10 * time.Second} {
				if i == 3 {
					kubetest.Change(s.Cluster, s.get(), func(v *moorv1alpha1.PodVolume) {
						v.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: "1"}
					})
					s.settle()
					names[s.name] = true
				}
				s.wantPhase(moorv1alpha1.PodVolumeDeletionFailed)
				n := len(s.made)
				if again, err := s.pass(); err != nil || again.RequeueAfter != pause {
					t.Errorf("try %d: looks again after %s, want %s; %v", i, again.RequeueAfter, pause, err)
				}
				s.Step(pause - time.Second)
				if s.settle(); len(s.made) != n {
					t.Errorf("try %d is tried again too soon", i)
				}
				s.Step(time.Second)
				if s.settle(); len(s.made) != n+1 {
					t.Errorf("try %d: %d pods", i, len(s.made)-n)
				}
				names[s.name] = true
			}
			if len(names) != 7 {
				t.Errorf("the pods of 7 tries have the names %v", names)
			}
			delete(s.does, pods.Deletion)
			s.Step(20 * time.Second)
			if s.settle(); s.get() != nil || s.pods() != 0 {
				t.Errorf("%+v is left, and %d pods", s.get(), s.pods())
			}
		})
	}
}

// TestUndoneLater: a creation that could not be undone says so once, however often that was tried, and what it says in the
// end is why it has failed.
func TestUndoneLater(t *testing.T) {
	s := newFixture(t, all, behavior{pods.Creation: "fail", pods.Deletion: "fail"})
	s.Add(podVolume())
	s.settle()
	first := s.get().Status.Message
	why, _, found := strings.Cut(first, "; what it has left could not be undone: ")
	for range 3 {
		s.Step(5 * time.Minute)
		s.settle()
		s.wantPhase(moorv1alpha1.PodVolumeDeletionFailed)
		if message := s.get().Status.Message; !found || strings.Count(message, "words of creation") != 1 || strings.Count(message, "words of deletion") != 1 {
			t.Errorf("%q, and at first %q", message, first)
		}
	}
	delete(s.does, pods.Deletion)
	s.Step(5 * time.Minute)
	s.settle()
	s.wantPhase(moorv1alpha1.PodVolumeFailed)
	if message := s.get().Status.Message; message != why || why == "" {
		t.Errorf("%q, want %q", message, why)
	}
}

// TestRetryAfterAMend: a person mends the provisioner, and asks for another try. The cache may show the one
// before the other.
func TestRetryAfterAMend(t *testing.T) {
	for title, crash := range map[string]bool{"at once": false, "after a crash before its pod was made": true} {
		t.Run(title, func(t *testing.T) {
			s := newStuck(t, behavior{pods.Deletion: "fail"})
			old := &pavv1alpha1.PavProvisioner{}
			s.Get(old, "p")
			kubetest.Change(s.Cluster, old.DeepCopy(), func(p *pavv1alpha1.PavProvisioner) {
				p.Spec.VolumeDeletion.PodTemplate.Raw = []byte(`{"spec": {"containers": [{"name": "c", "image": "mended"}]}}`)
				p.Generation++
			})
			kubetest.Change(s.Cluster, s.get(), func(v *moorv1alpha1.PodVolume) {
				v.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: "1"}
			})
			s.CacheShows(old)
			if crash {
				s.LoseWrite(2, false) // of its record and its pod, the latter
				if _, err := s.pass(); err == nil {
					t.Fatal("nothing was lost")
				}
			}
			if _, err := s.pass(); err != nil {
				t.Fatal(err)
			}
			var made corev1.PodList
			if err := s.Direct.List(t.Context(), &made); err != nil {
				t.Fatal(err)
			}
			if len(made.Items) != 1 || made.Items[0].Spec.Containers[0].Image != "mended" {
				t.Errorf("the pods that try again: %+v", made.Items)
			}
		})
	}
}
