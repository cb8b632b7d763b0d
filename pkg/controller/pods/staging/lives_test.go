package staging

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// life is a staging that is made, and deleted once it has come to rest.
type life struct {
	spec string
	does behavior
	// comes is the phase to which it comes, and words what its message has.
	comes moorv1alpha1.PodStagingPhase
	words string
	// goes is the phase in which it stays after its deletion; empty if it goes.
	goes moorv1alpha1.PodStagingPhase
	// ran are the pods of the whole life, and told the events on the user's pod.
	ran, told string
}

var lives = map[string]life{
	"a staging pod that ends":                                   {both, nil, isStaged, "", "", "staging unstaging", ""},
	"a staging pod that runs on":                                {both, behavior{pods.Staging: "stay"}, isStaged, "", "", "staging unstaging", ""},
	"a staging pod over a claim that ends, and is kept":         {over, behavior{pods.Staging: "kept"}, isStaged, "", "", "staging unstaging", ""},
	"a staging pod over a claim that fails, though it is kept":  {over, behavior{pods.Staging: "spoilt"}, isFailed, "container c ended with exit code 7", "", "staging unstaging", "VolumeReverting"},
	"without an unstaging pod":                                  {bare, nil, isStaged, "", "", "staging", ""},
	"a block device of the size of the volume":                  {both, behavior{pods.Staging: "block"}, isStaged, "", "", "staging unstaging", ""},
	"a block device of another size":                            {both, behavior{pods.Staging: "small"}, isFailed, "has left a block device of 536870912 bytes at /pav/volume, and the volume has 1073741824", "", "staging unstaging", "VolumeReverting"},
	"nothing at /pav/volume":                                    {both, behavior{pods.Staging: "none"}, isFailed, "no directory and no block device", "", "staging unstaging", "VolumeReverting"},
	"a staging pod that fails is followed by the unstaging pod": {both, behavior{pods.Staging: "fail"}, isFailed, "the staging pod secrets/", "", "staging unstaging", "VolumeReverting"},
	"a staging pod that fails, without an unstaging pod":        {bare, behavior{pods.Staging: "fail"}, isFailed, "words of staging", "", "staging", "VolumeReverting"},
	"a staging pod that another deletes has failed":             {both, behavior{pods.Staging: "vanish"}, isFailed, "was deleted by another", "", "staging unstaging", "VolumeReverting"},
	"an unstaging pod that fails is not tried again":            {both, behavior{pods.Unstaging: "fail"}, isStaged, "", isStuck, "staging unstaging", "VolumeUnstagingFailed"},
	"a failed staging that cannot be undone":                    {both, behavior{pods.Staging: "fail", pods.Unstaging: "fail"}, isStuck, "words of staging; what it has left could not be undone: ", isStuck, "staging unstaging", "VolumeReverting VolumeUnstagingFailed"},
	"templates of staging that fail leave nothing":              {strings.Replace(both, "image: stages", "image: '{{ nothing.there }}'", 1), nil, isFailed, "volumeStaging", "", "", "VolumeFailed"},
	"templates of unstaging that fail wait for a person":        {strings.Replace(both, "image: unstages", "image: '{{ nothing.there }}'", 1), nil, isStaged, "", isStuck, "staging", "VolumeUnstagingFailed"},
}

func (l life) begins(t *testing.T) *fixture {
	s := newFixture(t, l.spec, l.does)
	s.Add(stagingOf(name, "n", "user"))
	return s
}

func (l life) comesToRest(s *fixture) {
	s.t.Helper()
	s.wants(name, l.comes, l.words)
	kept := 0
	if does := l.does[pods.Staging]; does == "stay" || does == "kept" {
		kept = 1
	}
	if n := len(s.list()); n != kept || (s.get(name).Status.Pod != nil) != (kept == 1) {
		s.t.Fatalf("%d pods are there, and %+v is recorded", n, s.get(name).Status.Pod)
	}
}

func TestLives(t *testing.T) {
	for title, l := range lives {
		t.Run(title, func(t *testing.T) {
			s := l.begins(t)
			s.settle(name)
			l.comesToRest(s)
			writes, reads := s.Writes(), s.LiveReads()
			for range 3 {
				var again time.Duration
				if p := s.get(name); p.Status.Phase == isStuck {
					again = 5 * time.Second
				}
				if result, err := s.pass(name); err != nil || result.RequeueAfter != again {
					t.Error(result, err)
				}
			}
			if s.Writes() != writes || s.LiveReads() != reads {
				t.Errorf("at rest, %d writes and %d reads of the API server", s.Writes()-writes, s.LiveReads()-reads)
			}
			s.delete(name)
			s.settle(name)
			s.wants(name, l.goes, "")
			if s.ran() != l.ran {
				t.Errorf("the pods were %q, want %q", s.ran(), l.ran)
			}
			if got := s.Reasons(); got != l.told {
				t.Errorf("the pod was told %q, want %q", got, l.told)
			}
		})
	}
}

// TestCrash loses each write of some lives in turn, with and without effect, and goes on with an
// instance that remembers nothing: it comes to the same, and leaves nothing behind.
func TestCrash(t *testing.T) {
	for _, title := range []string{
		"a staging pod that runs on", "without an unstaging pod", "a staging pod that fails is followed by the unstaging pod",
		"a failed staging that cannot be undone",
	} {
		l, known := lives[title]
		if !known {
			t.Fatalf("there is no life %q", title)
		}
		t.Run(title, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				for k := 1; ; k++ {
					s := l.begins(t)
					s.LoseWrite(k, late)
					lost := s.settle(name)
					l.comesToRest(s)
					s.delete(name)
					if lost = s.settle(name) || lost; !lost {
						if k < 10 {
							t.Errorf("only %d writes were lost", k-1)
						}
						break
					}
					if s.wants(name, l.goes, ""); s.ran() != l.ran {
						t.Errorf("the pods were %q, want %q", s.ran(), l.ran)
					}
				}
			}
		})
	}
}

// TestInterrupted: a staging that is deleted at any instant is undone as far as it was.
func TestInterrupted(t *testing.T) {
	for passes := range 10 {
		s := newFixture(t, both, behavior{pods.Staging: "hang"})
		s.Add(stagingOf(name, "n", "user"))
		for range passes {
			if _, err := s.pass(name); err != nil {
				t.Fatal(err)
			}
			s.world(name)
		}
		s.delete(name)
		s.settle(name)
		s.wants(name, "", "")
		if passes == 9 && s.ran() != "staging unstaging" {
			t.Errorf("the pods were %q", s.ran())
		}
	}
}

// TestHealing: a staged pod that dies is told, and the volume is staged again once what is left of it is
// cleared; not before.
func TestHealing(t *testing.T) {
	ends := func(phase corev1.PodPhase) func(*fixture, *corev1.Pod) {
		return func(s *fixture, p *corev1.Pod) {
			kubetest.Change(s.Cluster, p, func(p *corev1.Pod) { p.Status.Phase = phase })
		}
	}
	vanishes := func(s *fixture, p *corev1.Pod) { s.Remove(p) }
	for title, tt := range map[string]struct {
		spec, does string
		dies       func(*fixture, *corev1.Pod)
	}{
		"deleted by another":                {both, "stay", vanishes},
		"failed":                            {both, "stay", ends(corev1.PodFailed)},
		"kept over a claim, and deleted":    {over, "kept", vanishes},
		"kept over a claim, and has failed": {over, "kept", ends(corev1.PodFailed)},
		"kept over a claim, and has ended":  {over, "kept", ends(corev1.PodSucceeded)},
	} {
		t.Run(title, func(t *testing.T) {
			s := newFixture(t, tt.spec, behavior{pods.Staging: tt.does})
			s.Add(stagingOf(name, "n", "user"))
			s.settle(name)
			s.clear = false
			dir, was := s.get(name).Status.Directory, s.get(name).Status.Pod.UID
			tt.dies(s, &s.list()[0])
			s.settle(name)
			s.wants(name, isBroken, "the staging pod secrets/")
			if got := s.Reasons(); got != "VolumeBroken" || len(s.list()) != 0 {
				t.Errorf("the pod was told %q, %d pods", got, len(s.list()))
			}
			s.clear = true
			s.settle(name)
			s.wants(name, isStaged, "")
			if got := s.Reasons(); got != "VolumeStaged" {
				t.Errorf("the pod was told %q", got)
			}
			if p := s.get(name); p.Status.Directory != dir || p.Status.Pod == nil || p.Status.Pod.UID == was || p.Status.Report.Cleared {
				t.Errorf("%+v", p.Status)
			}
			s.delete(name)
			s.settle(name)
			s.wants(name, "", "")
			if s.ran() != "staging unstaging" || len(s.made) != 3 {
				t.Errorf("the pods were %q", s.made)
			}
		})
	}
}

// TestEndedWell: a staged pod that ends well later has left its work behind, whatever becomes of it.
func TestEndedWell(t *testing.T) {
	s := newFixture(t, both, behavior{pods.Staging: "stay"})
	s.Add(stagingOf(name, "n", "user"))
	s.settle(name)
	kubetest.Change(s.Cluster, &s.list()[0], func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	s.settle(name)
	s.wants(name, isStaged, "")
	if len(s.list()) != 0 || s.get(name).Status.Pod != nil || s.Reasons() != "" {
		t.Errorf("%d pods, %+v", len(s.list()), s.get(name).Status)
	}
}

// TestNodeGone: a staging whose Node is gone for good ends without it, and the pod is told.
func TestNodeGone(t *testing.T) {
	for title, deleted := range map[string]bool{"while it is used": false, "while it is unstaged": true} {
		t.Run(title, func(t *testing.T) {
			s := newFixture(t, both, behavior{pods.Staging: "stay", pods.Unstaging: "hang"})
			s.Add(stagingOf(name, "n", "user"))
			s.settle(name)
			if deleted {
				s.delete(name)
				s.settle(name)
				s.wants(name, isUnstaging, "")
			}
			s.CacheHides(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			s.settle(name)
			if s.get(name) == nil {
				t.Fatal("a cache that does not show a Node is believed")
			}
			s.Remove(kubetest.Node("n", nil))
			s.settle(name)
			s.wants(name, "", "")
			if got := s.Reasons(); got != "VolumeUnstaged" {
				t.Errorf("the pod was told %q", got)
			}
		})
	}
}

// TestTimeout: a pod that does not come to an end has failed after its time, in words.
func TestTimeout(t *testing.T) {
	s := newFixture(t, both, behavior{pods.Staging: "hang"})
	s.Add(stagingOf(name, "n", "user"))
	s.settle(name)
	if result, err := s.pass(name); err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("looks again after %s: %v", result.RequeueAfter, err)
	}
	s.Step(time.Minute)
	s.settle(name)
	s.wants(name, isFailed, "has not ended within 1m0s: node n says nothing of it")
}
