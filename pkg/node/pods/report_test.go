package pods

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	helperpods "github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Show, Hide and Usage are for the endpoints, which these tests do not ask for volumes.

func (b *bed) Show(show.Want) error { return nil }

func (b *bed) Hide(string) error { return nil }

func (b *bed) Usage(string) ([]*csispec.VolumeUsage, error) { return nil, nil }

const creation = "pav-volume-creation-pod-1"

func TestReportOfVolume(t *testing.T) {
	full := &moorv1alpha1.PodReport{PodUID: "uid-of-" + creation, Handle: ptr.To("h"), Capacity: ptr.To("1Gi"), Error: "words"}
	type change struct {
		pod    func(p *corev1.Pod)
		volume func(v *moorv1alpha1.PodVolume)
		want   *moorv1alpha1.PodReport
	}
	for name, c := range map[string]change{
		"ended":             {want: full},
		"failed":            {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, want: full},
		"began at once":     {pod: func(p *corev1.Pod) { p.Status.StartTime = ptr.To(metav1.NewTime(time.Now().Truncate(time.Second))) }, want: full},
		"recorded with UID": {volume: func(v *moorv1alpha1.PodVolume) { v.Status.Pod.UID = full.PodUID }, want: full},
		"after another": {volume: func(v *moorv1alpha1.PodVolume) {
			v.Status.Report = &moorv1alpha1.PodReport{PodUID: "before", Problem: "p", Ready: true}
		}, want: full},
		"runs":                 {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }},
		"on another node":      {pod: func(p *corev1.Pod) { p.Spec.NodeName = "n2" }},
		"label of another":     {pod: func(p *corev1.Pod) { p.Labels[moorv1alpha1.LabelPodVolume] = "other" }},
		"no owner":             {pod: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		"another kind":         {pod: func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "v1" }},
		"another volume":       {volume: func(v *moorv1alpha1.PodVolume) { v.UID = "other" }},
		"another pod's turn":   {volume: func(v *moorv1alpha1.PodVolume) { v.Status.Pod.Name = "other" }},
		"another pod's name":   {volume: func(v *moorv1alpha1.PodVolume) { v.Status.Pod.UID = "other" }},
		"another namespace":    {volume: func(v *moorv1alpha1.PodVolume) { v.Status.Pod.Namespace = "other" }},
		"not known to be here": {volume: func(v *moorv1alpha1.PodVolume) { v.Status.Pod.NodeName = "" }},
		"no pod's turn":        {volume: func(v *moorv1alpha1.PodVolume) { v.Status.Pod = nil }},
		"another root of all":  {pod: func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = "/elsewhere" }, want: &moorv1alpha1.PodReport{PodUID: full.PodUID, Problem: "ROOT"}},
		"left by another":      {pod: func(p *corev1.Pod) { p.Status.StartTime = ptr.To(metav1.NewTime(time.Now().Add(time.Hour))) }, want: &moorv1alpha1.PodReport{PodUID: full.PodUID, Problem: "another has left it"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			pod, v := b.pod(creation, ofVolume, creation, corev1.PodSucceeded), podVolume(creation)
			if c.pod != nil {
				c.pod(pod)
			}
			if c.volume != nil {
				c.volume(v)
			}
			before := v.Status.Report
			for file, text := range map[string]string{"handle": "h\n", "capacity": "1Gi", "error": "words"} {
				b.write(creation, file, text)
			}
			b.add(pod, v)
			for range 2 {
				b.reconcilePod(creation)
			}
			got := b.volumeReport()
			switch {
			case c.want == nil:
				if d := cmp.Diff(before, got); d != "" || b.writes != 0 {
					t.Errorf("%d writes, %s", b.writes, d)
				}
				return
			case c.want.Problem == "ROOT":
				c.want.Problem = "the pod has not " + b.root.Path(creation) + " of the node as /pav: both modes of pod-provisioner need the same --root"
			case c.want.Problem != "":
				if got == nil || !strings.Contains(got.Problem, c.want.Problem) || got.Handle != nil || got.PodUID != c.want.PodUID {
					t.Errorf("%+v", got)
				}
				return
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if b.writes != 1 {
				t.Errorf("%d writes, want one", b.writes)
			}
			if !b.there(creation) {
				t.Error("the directory of a pod that is there was cleared")
			}
		})
	}
}

const (
	stagingPod   = "pav-volume-staging-pod-1"
	unstagingPod = "pav-volume-unstaging-pod-1"
)

// A pod that stages is told of when it is ready, once, and not again when it ends.
func TestReportOfStaging(t *testing.T) {
	b := newBed(t)
	s := podStaging(moorv1alpha1.PodStagingStaging, stagingPod)
	b.add(b.pod(stagingPod, ofStaging, staging, corev1.PodPending), s)
	for range 2 {
		if got := b.reconcilePod(stagingPod); got.RequeueAfter != defaultLook {
			t.Errorf("%+v, want that it is looked at again", got)
		}
		b.write(staging, "handle", "x") // now the directory is there
	}
	b.must(os.Mkdir(b.root.Path(staging)+"/volume", 0o755))
	b.write(staging, "ready", "")
	if got := b.reconcilePod(stagingPod); got.RequeueAfter != 0 {
		t.Errorf("%+v, want that all is done", got)
	}
	want := &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "uid-of-" + stagingPod, Ready: true, Handle: ptr.To("x")}, VolumeMode: corev1.PersistentVolumeFilesystem, BootID: boot}
	if d := cmp.Diff(want, b.stagingReport()); d != "" {
		t.Error(d)
	}
	b.write(staging, "error", "died")
	var pod corev1.Pod
	b.must(b.direct.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: stagingPod}, &pod))
	pod.Status.Phase = corev1.PodFailed
	b.must(b.direct.Status().Update(t.Context(), &pod))
	b.reconcilePod(stagingPod)
	if d := cmp.Diff(want, b.stagingReport()); d != "" || b.writes != 1 {
		t.Errorf("%d writes: %s", b.writes, d)
	}
}

// A staging pod that is kept over its claims is told of when its own containers have ended, and not before.
func TestReportOfKeptPod(t *testing.T) {
	b := newBed(t)
	pod := b.pod(stagingPod, ofStaging, staging, corev1.PodRunning)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}, {Name: helperpods.HoldName, Image: "i"}}
	b.add(pod, podStaging(moorv1alpha1.PodStagingStaging, stagingPod))
	b.must(os.MkdirAll(b.root.Path(staging)+"/volume", 0o755))
	if got := b.reconcilePod(stagingPod); got.RequeueAfter != defaultLook || b.stagingReport() != nil {
		t.Errorf("%+v, %+v, want that it is looked at again", got, b.stagingReport())
	}
	b.must(b.direct.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	b.must(b.direct.Status().Update(t.Context(), pod))
	b.reconcilePod(stagingPod)
	if got := b.stagingReport(); got == nil || got.PodUID != pod.UID || got.VolumeMode != corev1.PersistentVolumeFilesystem {
		t.Errorf("%+v", got)
	}
	slim, err := slimPod(pod)
	b.must(err)
	if got := slim.(*corev1.Pod); !helperpods.Ended(got) || got.Spec.Containers[0].Image != "" {
		t.Errorf("what the cache keeps of it: %+v", got)
	}
}

// What was left in the directory by the staging pod is not the unstaging pod's; of that before a staging
// pod it is told.
func TestReportOfSharedDirectory(t *testing.T) {
	for name, want := range map[string]string{stagingPod: "/pav/ready was written at ", unstagingPod: ""} {
		b := newBed(t)
		b.write(staging, "ready", "")
		b.write(staging, "error", "old")
		pod := b.pod(name, ofStaging, staging, corev1.PodSucceeded)
		pod.Status.StartTime = ptr.To(metav1.NewTime(time.Now().Add(time.Hour)))
		b.add(pod, podStaging(moorv1alpha1.PodStagingUnstaging, name))
		b.reconcilePod(name)
		got := b.stagingReport()
		if got == nil || got.Ready || got.Error != "" || !strings.HasPrefix(got.Problem, want) || (want == "") != (got.Problem == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	b := newBed(t)
	b.write(staging, "ready", "")
	b.add(b.pod(unstagingPod, ofStaging, staging, corev1.PodRunning), podStaging(moorv1alpha1.PodStagingUnstaging, unstagingPod))
	if got := b.reconcilePod(unstagingPod); got.RequeueAfter != 0 || b.stagingReport() != nil {
		t.Errorf("an unstaging pod that runs: %+v, %+v", got, b.stagingReport())
	}
}

// A cache that shows an old object does not have a report written for the wrong one.
func TestReportBehindCache(t *testing.T) {
	b := newBed(t)
	b.write(staging, "ready", "")
	s := podStaging(moorv1alpha1.PodStagingStaging, stagingPod)
	s.Status.Report = &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "before"}, Cleared: true, SizeBytes: 7}
	b.add(b.pod(stagingPod, ofStaging, staging, corev1.PodSucceeded), s)
	b.hidden["*v1alpha1.PodStaging"] = true
	b.reconcilePod(stagingPod)
	want := &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "uid-of-" + stagingPod, Ready: true}, BootID: boot}
	if d := cmp.Diff(want, b.stagingReport()); d != "" {
		t.Error(d)
	}
}

func TestSlimPod(t *testing.T) {
	b := newBed(t)
	for name, pod := range map[string]*corev1.Pod{"helper": b.pod(creation, ofVolume, creation, corev1.PodRunning), "other": b.pod("x", helper{}, "x", corev1.PodRunning)} {
		pod.Spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "SECRET"}}}}
		got, err := slimPod(pod)
		b.must(err)
		slim := got.(*corev1.Pod)
		_, ours := helperOf(slim)
		if ours != (name == "helper") || has(slim, b.root.Path(creation)) != ours || slim.Spec.Containers != nil || slim.UID != pod.UID || slim.Status.Phase != pod.Status.Phase {
			t.Errorf("%s: %+v", name, slim)
		}
	}
	if got, err := slimPod("x"); got != "x" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
