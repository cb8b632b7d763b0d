package staging

import (
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// TestRevoked: once the storage is being asked to revoke the DPU, no step makes a staging pod, from whatever phase; what is
// there is undone as ever.
func TestRevoked(t *testing.T) {
	cleared := &moorv1alpha1.StagingReport{Cleared: true}
	for name, tt := range map[string]struct {
		phase   moorv1alpha1.PodStagingPhase
		pod     pods.Phase
		unnoted bool
		deleted bool
		seen    seen
		report  *moorv1alpha1.StagingReport
		want    action
		to      moorv1alpha1.PodStagingPhase
	}{
		"new":                               {"", "", false, false, seen{}, nil, write, isFailed},
		"recorded, and not made":            {isStaging, pods.Staging, true, false, seen{}, nil, write, isReverting},
		"being staged":                      {isStaging, pods.Staging, false, false, seen{pod: helper.Seen{Pod: podIn("Running")}}, nil, write, isStaging},
		"staged, its pod dies":              {isStaged, pods.Staging, false, false, seen{pod: helper.Seen{Pod: podIn("Failed")}}, nil, write, isBroken},
		"broken, cleared":                   {isBroken, "", false, false, seen{}, cleared, write, isBroken},
		"staged, deleted":                   {isStaged, "", false, true, seen{}, nil, begin, ""},
		"its unstaging pod is not made yet": {isUnstaging, pods.Unstaging, true, true, seen{}, nil, makePod, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := stagingOf("s", "n", "user")
			p.Status = moorv1alpha1.PodStagingStatus{Phase: tt.phase, Report: tt.report, Directory: "d", RevokedFor: "attachment"}
			if tt.pod != "" {
				p.Status.Pod = &moorv1alpha1.HelperPod{Namespace: "ns", Name: podName(p, tt.pod), UID: "u", NodeName: "n", Since: metav1.NewTime(kubetest.Begin)}
			}
			if tt.unnoted {
				p.Status.Pod.UID, p.Status.Pod.NodeName = "", ""
			}
			if tt.deleted {
				p.DeletionTimestamp = &metav1.Time{Time: kubetest.Begin}
			}
			tt.seen.now, tt.seen.provisioner = kubetest.Begin.Add(time.Second), compiled.Found{Provisioner: &pods.Provisioner{}}
			got := decide(p, tt.seen)
			if got.do != tt.want || got.next.Phase != tt.to {
				t.Errorf("got %+v, want %d, %q", got, tt.want, tt.to)
			}
			if (got.do == begin || got.do == makePod) && got.phase == pods.Staging {
				t.Error("it is staged again")
			}
		})
	}
}

// TestRevokedBehindACache: a cache that does not show the mark has no staging pod made.
func TestRevokedBehindACache(t *testing.T) {
	for passes := range 4 {
		s := newFixture(t, both, behavior{pods.Staging: "hang"})
		s.attach("n")
		s.Add(attached("s"))
		for range passes {
			if _, err := s.pass("s"); err != nil {
				t.Fatal(err)
			}
		}
		before, made := s.get("s"), len(s.made)
		kubetest.Change(s.Cluster, s.get("s"), func(p *moorv1alpha1.PodStaging) { p.Status.RevokedFor = "attachment" })
		s.CacheShows(before)
		if _, err := s.pass("s"); err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		if len(s.made) != made {
			t.Errorf("after %d passes: pods %v were made behind an old cache", passes, s.made[made:])
		}
		s.CacheIsCurrent()
		s.settle("s")
		if slices.Contains(s.made[made:], string(pods.Staging)) {
			t.Errorf("after %d passes: pods %v were made", passes, s.made[made:])
		}
	}
}

// TestKnowsItsAttachment: the templates of a DPU see for which VolumeAttachment it has the volume; those of a pod see none.
func TestKnowsItsAttachment(t *testing.T) {
	spec := strings.Replace(both, "image: stages", `image: "{{ attachment.uid if attachment else 'none' }}"`, 1)
	if spec == both {
		t.Fatal("there is nothing to replace")
	}
	for name, tt := range map[string]struct {
		of   func() *moorv1alpha1.PodStaging
		want string
	}{
		"a DPU": {func() *moorv1alpha1.PodStaging { return attached("s") }, "attachment"},
		"a pod": {func() *moorv1alpha1.PodStaging { return stagingOf("s", "n", "user") }, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, spec, behavior{pods.Staging: "hang"})
			s.attach("n")
			s.Add(tt.of())
			s.settle("s")
			if all := s.list(); len(all) != 1 || all[0].Spec.Containers[0].Image != tt.want {
				t.Errorf("%+v of %+v", all, s.get("s").Status)
			}
		})
	}
}
