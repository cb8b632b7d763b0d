package staging

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// newStuck has a staging that was deleted, and whose unstaging has failed.
func newStuck(t *testing.T, does behavior) *fixture {
	t.Helper()
	s := newFixture(t, both, does)
	s.Add(stagingOf(name, "n", "user"))
	s.settle(name)
	s.delete(name)
	s.settle(name)
	s.wants(name, isStuck, "words of unstaging")
	return s
}

// TestRetry: each new value of the annotation begins an unstaging that failed again, once.
func TestRetry(t *testing.T) {
	for title, does := range map[string]behavior{"of a volume": {pods.Unstaging: "fail"}, "of a failed staging": {pods.Staging: "fail", pods.Unstaging: "fail"}} {
		t.Run(title, func(t *testing.T) {
			s := newStuck(t, does)
			retry := func(value string) {
				kubetest.Change(s.Cluster, s.get(name), func(p *moorv1alpha1.PodStaging) {
					p.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: value}
				})
				s.settle(name)
			}
			n := len(s.made)
			retry("1")
			retry("1")
			if s.wants(name, isStuck, ""); len(s.made) != n+1 {
				t.Errorf("%d unstaging pods for one value", len(s.made)-n)
			}
			delete(s.does, pods.Unstaging)
			retry("2")
			s.wants(name, "", "")
		})
	}
}

// TestHoldStays: what keeps the volumes of claims on the node stays beside the unstaging pod, however often that is
// tried, and goes once it has done its work.
func TestHoldStays(t *testing.T) {
	for title, tt := range map[string]struct {
		staging string
		stuck   bool
		ends    moorv1alpha1.PodStagingPhase
	}{
		"of a volume": {staging: "kept"},
		"of a volume that cannot be unstaged first": {staging: "kept", stuck: true},
		"of a failed staging":                       {staging: "spoilt", ends: isFailed},
		"of a failed staging that cannot be undone": {staging: "spoilt", stuck: true, ends: isFailed},
	} {
		t.Run(title, func(t *testing.T) {
			s := newFixture(t, over, behavior{pods.Staging: tt.staging, pods.Unstaging: "hang"})
			s.Add(stagingOf(name, "n", "user"))
			s.settle(name)
			if tt.staging == "kept" {
				s.delete(name)
				s.settle(name)
			}
			hold := podName(s.get(name), pods.Staging)
			there := func(want ...string) {
				t.Helper()
				var got []string
				for _, pod := range s.list() {
					got = append(got, pod.Name)
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("the pods are %v, want %v", got, want)
				}
			}
			there(hold, podName(s.get(name), pods.Unstaging))
			if tt.stuck {
				s.does[pods.Unstaging] = "fail"
				s.settle(name)
				s.wants(name, isStuck, "")
				there(hold)
				s.Step(5 * time.Second)
			}
			s.does[pods.Unstaging] = "ok"
			s.settle(name)
			s.wants(name, tt.ends, "")
			there()
		})
	}
}

// TestRetriedByItself: an unstaging that failed is tried again by itself, each time later.
func TestRetriedByItself(t *testing.T) {
	for title, does := range map[string]behavior{"of a volume": {pods.Unstaging: "fail"}, "of a failed staging": {pods.Staging: "fail", pods.Unstaging: "fail"}} {
		t.Run(title, func(t *testing.T) {
			s := newStuck(t, does)
			for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
				s.wants(name, isStuck, "words of unstaging")
				n := len(s.made)
				if again, err := s.pass(name); err != nil || again.RequeueAfter != pause {
					t.Errorf("looks again after %s, want %s; %v", again.RequeueAfter, pause, err)
				}
				s.Step(pause - time.Second)
				if s.settle(name); len(s.made) != n {
					t.Error("it is tried again too soon")
				}
				s.Step(time.Second)
				if s.settle(name); len(s.made) != n+1 {
					t.Errorf("%d pods after %s", len(s.made)-n, pause)
				}
			}
			delete(s.does, pods.Unstaging)
			s.Step(40 * time.Second)
			s.settle(name)
			s.wants(name, "", "")
		})
	}
}

// TestUndoneLater: a staging that could not be undone says so once, however often that was tried, and what it says in the
// end is why it has failed.
func TestUndoneLater(t *testing.T) {
	s := newFixture(t, both, behavior{pods.Staging: "fail", pods.Unstaging: "fail"})
	s.Add(stagingOf(name, "n", "user"))
	s.settle(name)
	first := s.get(name).Status.Message
	why, _, found := strings.Cut(first, "; what it has left could not be undone: ")
	for range 3 {
		s.Step(5 * time.Minute)
		s.settle(name)
		s.wants(name, isStuck, "")
		if message := s.get(name).Status.Message; !found || strings.Count(message, "words of staging") != 1 || strings.Count(message, "words of unstaging") != 1 {
			t.Errorf("%q, and at first %q", message, first)
		}
	}
	delete(s.does, pods.Unstaging)
	s.Step(5 * time.Minute)
	s.settle(name)
	s.wants(name, isFailed, "")
	if message := s.get(name).Status.Message; message != why || why == "" {
		t.Errorf("%q, want %q", message, why)
	}
}

// TestRetryAfterAMend: a person mends the provisioner, and asks for another try. The cache may show the one
// before the other.
func TestRetryAfterAMend(t *testing.T) {
	for title, crash := range map[string]bool{"at once": false, "after a crash before its pod was made": true} {
		t.Run(title, func(t *testing.T) {
			s := newStuck(t, behavior{pods.Unstaging: "fail"})
			old := &pavv1alpha1.PavProvisioner{}
			s.Get(old, "p")
			kubetest.Change(s.Cluster, old.DeepCopy(), func(p *pavv1alpha1.PavProvisioner) {
				p.Spec.VolumeUnstaging.PodTemplate.Raw = []byte(`{"spec": {"containers": [{"name": "c", "image": "mended"}]}}`)
				p.Generation++
			})
			kubetest.Change(s.Cluster, s.get(name), func(p *moorv1alpha1.PodStaging) {
				p.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: "1"}
			})
			s.CacheShows(old)
			if crash {
				s.LoseWrite(2, false) // of its record and its pod, the latter
				if _, err := s.pass(name); err == nil {
					t.Fatal("nothing was lost")
				}
			}
			if _, err := s.pass(name); err != nil {
				t.Fatal(err)
			}
			var made corev1.PodList
			if err := s.Direct.List(t.Context(), &made, client.HasLabels{moorv1alpha1.LabelHelperPhase}); err != nil {
				t.Fatal(err)
			}
			if len(made.Items) != 1 || made.Items[0].Spec.Containers[0].Image != "mended" {
				t.Errorf("the pods that try again: %+v", made.Items)
			}
		})
	}
}
