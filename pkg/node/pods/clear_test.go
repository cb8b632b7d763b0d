package pods

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// A directory is cleared in the phases in which nothing of it is needed, and when no pod has it.
func TestClearsByPhase(t *testing.T) {
	for phase, want := range map[moorv1alpha1.PodStagingPhase]bool{
		"": false, moorv1alpha1.PodStagingStaging: false, moorv1alpha1.PodStagingStaged: false, moorv1alpha1.PodStagingUnstagingFailed: false,
		moorv1alpha1.PodStagingBroken: true, moorv1alpha1.PodStagingReverting: true, moorv1alpha1.PodStagingFailed: true,
		moorv1alpha1.PodStagingUnstaging: true, moorv1alpha1.PodStagingUnstaged: true,
	} {
		t.Run(string(phase), func(t *testing.T) {
			b := newBed(t)
			b.write(staging, "f", "x")
			b.add(podStaging(phase, stagingPod))
			for range 2 {
				b.reconcileStaging()
			}
			report := b.stagingReport()
			if b.there(staging) == want || (report != nil && report.Cleared) != want {
				t.Errorf("the directory is there %t, report %+v", b.there(staging), report)
			}
			if want && (report.PodUID != "uid-of-"+stagingPod || b.writes != 1) {
				t.Errorf("%d writes, of pod %s", b.writes, report.PodUID)
			}
		})
	}
}

func TestClear(t *testing.T) {
	read := &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "uid-of-" + stagingPod, Ready: true, Error: "e"}, SizeBytes: 7}
	cleared := read.DeepCopy()
	cleared.Cleared = true
	for name, c := range map[string]struct {
		change func(b *bed, s *moorv1alpha1.PodStaging)
		want   *moorv1alpha1.StagingReport
	}{
		"what was read stays": {func(_ *bed, s *moorv1alpha1.PodStaging) { s.Status.Report = read.DeepCopy() }, cleared},
		"between two pods":    {func(_ *bed, s *moorv1alpha1.PodStaging) { s.Status.Report, s.Status.Pod = read.DeepCopy(), nil }, cleared},
		"of a pod that was never read": {func(_ *bed, s *moorv1alpha1.PodStaging) {
			s.Status.Report, s.Status.Pod.UID = read.DeepCopy(), "another"
		}, &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "another"}, Cleared: true}},
		"cleared before for another pod": {func(_ *bed, s *moorv1alpha1.PodStaging) {
			s.Status.Report, s.Status.Pod.UID = cleared.DeepCopy(), "another"
		}, &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "another"}, Cleared: true}},
		"no pod ever": {func(_ *bed, s *moorv1alpha1.PodStaging) { s.Status.Pod = nil }, &moorv1alpha1.StagingReport{Cleared: true}},
		"a pod is about to be made": {func(_ *bed, s *moorv1alpha1.PodStaging) {
			s.Status.Report, s.Status.Pod.UID = read.DeepCopy(), ""
		}, read},
		"its pod is there, and the cache does not show it": {func(b *bed, s *moorv1alpha1.PodStaging) {
			s.Status.Report = read.DeepCopy()
			b.add(b.pod(stagingPod, ofStaging, staging, corev1.PodFailed))
			b.hidden["*v1.PodList"], b.hidden["*v1.Pod"] = true, true
		}, read},
		"a pod that ends is there": {func(b *bed, s *moorv1alpha1.PodStaging) {
			s.Status.Report = read.DeepCopy()
			pod := b.pod(stagingPod, ofStaging, staging, corev1.PodRunning)
			pod.Finalizers = []string{"x/y"}
			b.add(pod)
			b.must(b.direct.Delete(b.t.Context(), pod))
		}, read},
		"the pod of another": {func(b *bed, s *moorv1alpha1.PodStaging) {
			s.Status.Report = read.DeepCopy()
			b.add(b.pod("other", ofStaging, "other", corev1.PodRunning))
		}, cleared},
		"on another node": {func(_ *bed, s *moorv1alpha1.PodStaging) { s.Status.Report, s.Spec.NodeName = read.DeepCopy(), "n2" }, read},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.write(staging, "f", "x")
			s := podStaging(moorv1alpha1.PodStagingUnstaging, stagingPod)
			c.change(b, s)
			b.add(s)
			b.reconcileStaging()
			if d := cmp.Diff(c.want, b.stagingReport()); d != "" {
				t.Error(d)
			}
			if b.there(staging) == c.want.Cleared {
				t.Errorf("the directory is there: %t", b.there(staging))
			}
		})
	}
}

// Of a staging that ended before its directory was recorded there is nothing to clear.
func TestClearWithoutDirectory(t *testing.T) {
	b := newBed(t)
	s := podStaging(moorv1alpha1.PodStagingUnstaging, "")
	s.Status.Directory = ""
	b.add(s)
	if b.reconcileStaging(); b.stagingReport() == nil || !b.stagingReport().Cleared {
		t.Errorf("%+v", b.stagingReport())
	}
}

// What the cache shows of a phase that is over clears nothing.
func TestClearBehindCache(t *testing.T) {
	b := newBed(t)
	b.write(staging, "f", "x")
	s := podStaging(moorv1alpha1.PodStagingStaged, stagingPod)
	b.add(s)
	live := b.cluster.Live
	old := podStaging(moorv1alpha1.PodStagingBroken, stagingPod)
	b.remove(s) // it is replaced by one that is Broken in the cache alone
	b.add(old)
	other := newBed(t)
	other.add(podStaging(moorv1alpha1.PodStagingStaged, stagingPod))
	b.cluster.Live = other.direct
	b.reconcileStaging()
	if !b.there(staging) {
		t.Error("it was cleared, and the API server says that it is staged")
	}
	b.cluster.Live = live
	b.reconcileStaging()
	if b.there(staging) {
		t.Error("it was not cleared")
	}
}

// A mount in use is waited for, and then unmounted lazily, which is said.
func TestPatience(t *testing.T) {
	b := newBed(t)
	var asked []bool
	how := func(_ context.Context, _ string, lazily bool) ([]string, error) {
		if asked = append(asked, lazily); lazily {
			return []string{"/m"}, nil
		}
		return nil, pavdir.ErrBusy
	}
	for n := range 5 {
		after, detached, err := b.empty(t.Context(), staging, how)
		if last := n == 4; err != nil || (after == 0) != last || (len(detached) == 1) != last {
			t.Fatalf("try %d: after %s, %v, %v", n, after, detached, err)
		}
		b.clock.Step(after)
	}
	if d := cmp.Diff([]bool{false, false, false, false, true}, asked); d != "" || len(b.busy) != 0 {
		t.Errorf("%s, %v", d, b.busy)
	}
	if _, _, err := b.empty(t.Context(), staging, func(context.Context, string, bool) ([]string, error) { return nil, errors.New("x") }); err == nil {
		t.Error("an error is lost")
	}
}

func TestRenew(t *testing.T) {
	fs, block := "pods/uid-u/volumes/kubernetes.io~csi/pv-1/mount", "plugins/kubernetes.io/csi/volumeDevices/publish/pv-1/uid-u"
	for name, c := range map[string]struct {
		change func(s *moorv1alpha1.PodStaging)
		want   string
	}{
		"staged":           {func(*moorv1alpha1.PodStaging) {}, fs},
		"block":            {func(s *moorv1alpha1.PodStaging) { s.Status.Report.VolumeMode = corev1.PersistentVolumeBlock }, block},
		"broken":           {func(s *moorv1alpha1.PodStaging) { s.Status.Phase = moorv1alpha1.PodStagingBroken }, ""},
		"another boot":     {func(s *moorv1alpha1.PodStaging) { s.Status.Report.BootID = "boot-1" }, ""},
		"nothing was read": {func(s *moorv1alpha1.PodStaging) { s.Status.Report = nil }, ""},
		"another node":     {func(s *moorv1alpha1.PodStaging) { s.Spec.NodeName = "n2" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			s := podStaging(moorv1alpha1.PodStagingStaged, stagingPod)
			s.Spec.ReadOnly = true
			s.Status.Report = &moorv1alpha1.StagingReport{VolumeMode: corev1.PersistentVolumeFilesystem, BootID: boot}
			c.change(s)
			b.add(s)
			b.reconcileStaging()
			var want []show.Want
			if c.want != "" {
				want = []show.Want{{Directory: staging, Target: b.o.Kubelet + "/" + c.want, Mode: s.Status.Report.VolumeMode, ReadOnly: true}}
				if len(b.events.Events) != 1 {
					t.Error("no event")
				}
				b.renew = provisioner.ErrBusy
				if got := b.reconcileStaging(); got.RequeueAfter == 0 {
					t.Error("a target that another call works on is not looked at again")
				}
				want = append(want, want...)
			}
			if d := cmp.Diff(want, b.renewed); d != "" {
				t.Error(d)
			}
		})
	}
}

// What is left of what is gone is found, and nothing else. The API server itself says what is gone.
func TestSweep(t *testing.T) {
	b := newBed(t)
	for _, directory := range []string{staging, creation, "gone", "named-as-staging"} {
		b.write(directory, "f", "x")
	}
	b.write(".gone~was~1", "f", "x")
	b.write("lost+found", "f", "x")
	named := podStaging("", "")
	named.Name, named.UID, named.Status.Directory = "named-as-staging", "uid-n", ""
	b.add(podStaging(moorv1alpha1.PodStagingStaged, stagingPod), named, b.pod(creation, ofVolume, creation, corev1.PodSucceeded),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "user", UID: "uid-u"}, Spec: corev1.PodSpec{NodeName: node}})
	for _, hidden := range []bool{false, true} {
		if hidden {
			b.hide()
		}
		b.must(sweeper{b.Agent}.sweep(t.Context()))
		for directory, want := range map[string]bool{staging: true, creation: true, "named-as-staging": true, "gone": false, ".gone~was~1": false, "lost+found": true} {
			if b.there(directory) != want {
				t.Errorf("hidden %t: %s is there: %t, want %t", hidden, directory, b.there(directory), want)
			}
		}
	}
	clear(b.hidden)
	b.remove(b.pod(creation, ofVolume, creation, corev1.PodSucceeded))
	if b.reconcilePod(creation); b.there(creation) {
		t.Error("what the pod of a PodVolume has left is there when the pod is gone")
	}
	b.reconcilePod(staging) // a pod of any user can have the name of a directory
	if !b.there(staging) {
		t.Error("the directory of a staging was cleared because a pod of its name has gone")
	}
}

// A staging for a pod that the kubelet has forgotten is undone.
func TestForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *bed, s *moorv1alpha1.PodStaging, user *corev1.Pod)
		want   bool
	}{
		"the pod is there":     {func(*bed, *moorv1alpha1.PodStaging, *corev1.Pod) {}, false},
		"in no cache":          {func(b *bed, _ *moorv1alpha1.PodStaging, _ *corev1.Pod) { b.hidden["*v1.Pod"] = true }, false},
		"another has its name": {func(_ *bed, _ *moorv1alpha1.PodStaging, user *corev1.Pod) { user.UID = "other" }, true},
		"gone":                 {func(_ *bed, _ *moorv1alpha1.PodStaging, user *corev1.Pod) { user.Name = "other" }, true},
		"gone, and shown": {func(b *bed, _ *moorv1alpha1.PodStaging, user *corev1.Pod) {
			user.Name = "other"
			b.shown[b.o.Kubelet+"/pods/uid-u/volumes/kubernetes.io~csi/pv-1/mount"] = true
		}, false},
		"gone, on another node": {func(_ *bed, s *moorv1alpha1.PodStaging, user *corev1.Pod) {
			user.Name = "other"
			s.Spec.NodeName = "n2"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			s, user := podStaging(moorv1alpha1.PodStagingStaged, stagingPod), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "user", UID: "uid-u"}}
			c.change(b, s, user)
			b.add(s, user)
			b.must(sweeper{b.Agent}.forgotten(t.Context()))
			var all moorv1alpha1.PodStagingList
			b.must(b.direct.List(t.Context(), &all))
			if got := !all.Items[0].DeletionTimestamp.IsZero(); got != c.want {
				t.Errorf("deleted: %t", got)
			}
		})
	}
}

// The sweeper looks at once and then each time that the clock says.
func TestSweeperRuns(t *testing.T) {
	b := newBed(t)
	b.write("first", "f", "x")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sweeper{b.Agent}.Start(ctx) }()
	wait(t, "the first sweep", func() bool { return !b.there("first") })
	b.write("second", "f", "x")
	wait(t, "the second sweep", func() bool { b.clock.Step(b.o.Look); return !b.there("second") })
	cancel()
	b.must(<-done)
}
