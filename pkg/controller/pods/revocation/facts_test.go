package revocation

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestReady: that a staging pod has staged, and so opens nothing any more, is said of this very pod by its own staging.
func TestReady(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.PodStaging)
		want   bool
	}{
		"it has said so":              {func(*moorv1alpha1.PodStaging) {}, true},
		"it has not said it yet":      {func(p *moorv1alpha1.PodStaging) { p.Status.Report.Ready = false }, false},
		"an earlier pod has said it":  {func(p *moorv1alpha1.PodStaging) { p.Status.Report.PodUID = "earlier" }, false},
		"it is of another staging":    {func(p *moorv1alpha1.PodStaging) { p.UID = "another" }, false},
		"nothing is reported":         {func(p *moorv1alpha1.PodStaging) { p.Status.Report = nil }, false},
		"the staging is gone already": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod", Labels: map[string]string{moorv1alpha1.LabelPodStaging: "staging"}}}
			p := moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{UID: "staging"}}
			p.Status.Report = &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "pod", Ready: true}}
			f := facts{stagings: []moorv1alpha1.PodStaging{p}}
			if tc.change == nil {
				f.stagings = nil
			} else {
				tc.change(&f.stagings[0])
			}
			if got := f.ready(pod); got != tc.want {
				t.Errorf("ready: %v", got)
			}
		})
	}
}

// TestStale: the success of a pod proves nothing if it is not known which pod that was and of what it was made, or if
// something was staged since it began.
func TestStale(t *testing.T) {
	by := provisionerOf(t)
	stagedAt := func(at time.Time) func(*facts, *moorv1alpha1.PodRevocation) {
		return func(f *facts, _ *moorv1alpha1.PodRevocation) {
			f.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}}}
		}
	}
	for name, tc := range map[string]struct {
		change func(*facts, *moorv1alpha1.PodRevocation)
		words  string
	}{
		"it proves":            {change: func(*facts, *moorv1alpha1.PodRevocation) {}},
		"it was staged before": {change: stagedAt(kubetest.Begin.Add(-time.Second))},
		"staged since":         {stagedAt(kubetest.Begin.Add(time.Second)), "was made after its pod"},
		"in the same second":   {stagedAt(kubetest.Begin), "was made after its pod"},
		"no beginning":         {func(_ *facts, r *moorv1alpha1.PodRevocation) { r.Status.Began = nil }, "not on record which pod"},
		"no pod":               {func(_ *facts, r *moorv1alpha1.PodRevocation) { r.Status.Pod = nil }, "not on record which pod"},
		"a pod without a UID":  {func(_ *facts, r *moorv1alpha1.PodRevocation) { r.Status.Pod.UID = "" }, "not on record which pod"},
		"another provisioner":  {func(_ *facts, r *moorv1alpha1.PodRevocation) { r.Status.ProvisionerUID = "another" }, "is another than that"},
		"another template":     {func(_ *facts, r *moorv1alpha1.PodRevocation) { r.Status.Template = "another" }, "is another than that"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := revoking(by)
			r.Status.Phase, r.Status.Began = isRevoked, &metav1.Time{Time: kubetest.Begin}
			f := facts{provisioner: by}
			tc.change(&f, r)
			if got := f.stale(r); (got == "") != (tc.words == "") || !strings.Contains(got, tc.words) {
				t.Errorf("%q, want %q", got, tc.words)
			}
		})
	}
}

// TestNextOfARevocation: what is done about the PodRevocation that is there, while everything else is as it has to be.
func TestNextOfARevocation(t *testing.T) {
	s := newFixture(t).taken()
	s.does = "hang"
	s.settle()
	f, err := s.req.look(t.Context(), s.asked())
	if err != nil {
		t.Fatal(err)
	}
	revoked := func(r *moorv1alpha1.PodRevocation) {
		r.Status.Phase, r.Status.Began = isRevoked, &metav1.Time{Time: s.Clock.Now()}
	}
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.PodRevocation)
		want   answer
		words  string
	}{
		"it has revoked": {revoked, say, ""},
		"its pod runs":   {func(*moorv1alpha1.PodRevocation) {}, waits, "the revocation pod default/"},
		"it is new":      {func(r *moorv1alpha1.PodRevocation) { r.Status = moorv1alpha1.PodRevocationStatus{} }, waits, "the revocation pod is to run"},
		"it has revoked, and goes": {func(r *moorv1alpha1.PodRevocation) {
			revoked(r)
			r.DeletionTimestamp = &metav1.Time{Time: s.Clock.Now()}
		}, waits, "until what is left of an earlier revocation is gone"},
		"it has revoked another epoch": {func(r *moorv1alpha1.PodRevocation) { revoked(r); r.Spec.Epoch++ }, discard, "another attachment, epoch, volume or DPU"},
		"it has revoked by no pod":     {func(r *moorv1alpha1.PodRevocation) { revoked(r); r.Status.Pod = nil }, discard, "which pod has revoked"},
		"it has failed": {func(r *moorv1alpha1.PodRevocation) {
			r.Status.Phase, r.Status.Message = isFailed, "no"
		}, waits, "no. It is tried again by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.all()[0].DeepCopy()
			tc.change(r)
			got, words := next(s.asked(), f, r)
			if got != tc.want || (words == "") != (tc.words == "") || !strings.Contains(words, tc.words) {
				t.Errorf("%d, %q; want %d, %q", got, words, tc.want, tc.words)
			}
		})
	}
}
