package patrol

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/node/dpu/journal"
)

// TestRoundOverWhatStands: a round over a DPU on which all is as it should be asks the API server nothing,
// and has nothing looked at again: every DPU makes one each period.
func TestRoundOverWhatStands(t *testing.T) {
	k := newKit(t)
	k.stands("v")
	k.must(k.journal.Show("uid", "v", 1))
	for range 3 {
		k.must(k.Round(t.Context()))
		k.clock.Step(time.Hour)
	}
	if k.server.reads != 0 || len(k.looked()) != 0 {
		t.Errorf("the API server was read %d times", k.server.reads)
	}
	k.want("shown dev-v", "made dev-v")
	if standing := k.journal.Standing(); standing["v"] != 1 {
		t.Errorf("standing are %v", standing)
	}
}

// TestRoundLooksAgain: an attachment is looked at again if SNAP shows something else, or if its device is
// not made any more; not where it goes, or has none.
func TestRoundLooksAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*kit, *storagev1alpha1.VolumeAttachment)
		want   bool
	}{
		"all is well":            {change: func(*kit, *storagev1alpha1.VolumeAttachment) {}},
		"SNAP has lost it":       {change: func(k *kit, _ *storagev1alpha1.VolumeAttachment) { k.service.shows = nil }, want: true},
		"the plugin has lost it": {change: func(k *kit, _ *storagev1alpha1.VolumeAttachment) { k.plugin.made = nil }, want: true},
		"it lists what it lacks": {change: func(k *kit, _ *storagev1alpha1.VolumeAttachment) { k.plugin.lost = []string{"dev-v"} }, want: true},
		"the plugin is away":     {change: func(k *kit, _ *storagev1alpha1.VolumeAttachment) { k.plugin.made, k.plugin.down = nil, errDown }},
		"it goes, and SNAP lacks it": {change: func(k *kit, a *storagev1alpha1.VolumeAttachment) {
			a.DeletionTimestamp = &metav1.Time{Time: kubetest.Begin}
			k.service.shows = nil
		}},
		"it goes, and the plugin lacks it": {change: func(k *kit, a *storagev1alpha1.VolumeAttachment) {
			a.DeletionTimestamp = &metav1.Time{Time: kubetest.Begin}
			k.plugin.made = nil
		}},
		"none is made yet": {change: func(k *kit, a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{}
			k.service.shows, k.plugin.made = nil, nil
		}},
		"it names no volume": {change: func(k *kit, a *storagev1alpha1.VolumeAttachment) {
			a.Spec.Source.VolumeRef = nil
			k.plugin.made = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			k.stands("v")
			tc.change(k, &k.cache.all[0])
			k.server.all = k.cache.all
			err := k.Round(t.Context())
			if (err != nil) != (k.plugin.down != nil) || !errors.Is(err, k.plugin.down) {
				t.Errorf("it says %v", err)
			}
			if got := slices.Equal(k.looked(), []string{"of-v"}); got != tc.want {
				t.Errorf("looked at again: %v, want %v", got, tc.want)
			}
		})
	}
}

// TestRoundTellsOfServices: that SNAP answers, or does not any more, is told once, so that the DPU reports
// it at once.
func TestRoundTellsOfServices(t *testing.T) {
	k := newKit(t)
	for i, step := range []struct {
		down error
		want int
	}{{nil, 1}, {nil, 1}, {errDown, 2}, {errDown, 2}, {nil, 3}} {
		k.service.down = step.down
		if err := k.Round(t.Context()); !errors.Is(err, step.down) || step.down == nil && err != nil {
			t.Errorf("round %d: %v", i, err)
		}
		if k.changes != step.want {
			t.Errorf("round %d: told %d times, want %d", i, k.changes, step.want)
		}
	}
}

// TestRoundWithoutTheCache: without the attachments nothing is judged, and what SNAP says is told as well.
func TestRoundWithoutTheCache(t *testing.T) {
	k := newKit(t)
	k.shows("orphan")
	lost := errors.New("no cache yet")
	k.cache.lost = lost
	k.service.down = errDown
	for range 3 {
		if err := k.Round(t.Context()); !errors.Is(err, lost) || !errors.Is(err, errDown) {
			t.Errorf("it says %v", err)
		}
		k.clock.Step(time.Hour)
	}
	if k.want("shown orphan"); k.server.reads != 0 {
		t.Errorf("the API server was read %d times", k.server.reads)
	}
}

// TestRetire: an epoch is over of a volume that has no attachment here any more, by the cache and by the
// API server itself. One alone may be behind.
func TestRetire(t *testing.T) {
	lost := errors.New("no route")
	for name, tc := range map[string]struct {
		cached, live bool
		lost         error
		standing     int
	}{
		"both have it":              {cached: true, live: true, standing: 1},
		"the cache alone has it":    {cached: true, standing: 1},
		"the server alone has it":   {live: true, standing: 1},
		"neither has it":            {},
		"the server is not reached": {lost: lost, standing: 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			a := kubetest.VolumeAttachment("of-v", "v", "dpu-1")
			if tc.cached {
				k.cache.all = append(k.cache.all, *a)
			}
			if tc.live {
				k.server.all = append(k.server.all, *a)
			}
			k.server.lost = tc.lost
			k.must(k.journal.Show("uid", "v", 3))
			err := k.Round(t.Context())
			if !errors.Is(err, tc.lost) || tc.lost == nil && err != nil || err != nil && !strings.Contains(err.Error(), "nothing is retired") {
				t.Errorf("it says %v", err)
			}
			if got := k.journal.Standing(); len(got) != tc.standing {
				t.Errorf("standing are %v", got)
			}
			if refused := k.journal.Refusal("uid", 3) != ""; refused != (tc.standing == 0) {
				t.Errorf("the epoch is over: %v", refused)
			}
		})
	}
}

// TestRetireFails: what could not be noted is told, and is tried again by the next round.
func TestRetireFails(t *testing.T) {
	k := newKit(t)
	path := t.TempDir() + "/journal"
	k.o.Journal = journal.Open(path)
	k.must(k.o.Journal.Show("uid", "v", 3))
	k.must(os.Mkdir(path+".new", 0o700)) // where it cannot be written
	if err := k.Round(t.Context()); err == nil || !strings.Contains(err.Error(), "write the journal") {
		t.Errorf("it says %v", err)
	}
}

// TestPatrolOnEveryDPU: each DPU has its own, whichever leads; and of DPUs that have begun together not
// all ask at the same time.
func TestPatrolOnEveryDPU(t *testing.T) {
	if new(Patrol).NeedLeaderElection() {
		t.Error("only one DPU makes rounds")
	}
	p, seen := New(Options{}), map[time.Duration]bool{}
	for range 100 {
		seen[p.o.Jitter(period)] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 periods are of %d lengths", len(seen))
	}
	if since := time.Since(p.o.Clock.Now()); since < 0 || since > time.Minute {
		t.Errorf("its clock is %s behind", since)
	}
}

// TestRoundsAreLogged: what a round could not do is in the log, by the name of the patrol, as is what it
// says by itself; but not what fails since the driver ends, and nothing where all went well.
func TestRoundsAreLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		down   error
		ends   bool
		failed int
	}{
		"it goes well":        {},
		"it fails":            {down: errDown, failed: 1},
		"it fails as it ends": {down: errDown, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			k.shows("orphan")
			k.service.down = tc.down
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			k.service.listed = func() {
				if tc.ends {
					cancel()
				}
			}
			k.o.Jitter = func(d time.Duration) time.Duration {
				cancel()
				return d
			}
			found, failed := 0, 0
			log := funcr.New(func(prefix, line string) {
				if prefix == "patrol" && strings.Contains(line, "belongs to no attachment") {
					found++
				}
				if strings.Contains(line, `"error"=`) {
					failed++
				}
				if strings.Contains(line, errDown.Error()) && prefix != "patrol" {
					t.Errorf("it is logged by %q", prefix)
				}
			}, funcr.Options{})
			k.must(k.Start(ctrl.LoggerInto(ctx, log)))
			if found != 1 || failed != tc.failed {
				t.Errorf("logged is %d times what it found, %d times that it failed", found, failed)
			}
		})
	}
}
