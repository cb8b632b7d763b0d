package revocation

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
)

// revoking is a PodRevocation whose pod is recorded, noted and runs elsewhere, of the provisioner as it is.
func revoking(by compiled.Found) (*moorv1alpha1.PodRevocation, seen) {
	r := &moorv1alpha1.PodRevocation{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: moorv1alpha1.PodRevocationSpec{NodeName: dpu}}
	r.Status = moorv1alpha1.PodRevocationStatus{
		Phase: isRevoking, ProvisionerUID: by.UID, Template: by.Provisioner.Revokes(), Message: "runs",
		Pod: &moorv1alpha1.HelperPod{Namespace: "default", Name: "p", UID: "u", NodeName: "n", Since: metav1.NewTime(kubetest.Begin)},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", CreationTimestamp: metav1.NewTime(kubetest.Begin.Add(time.Second))}}
	pod.Spec.NodeName, pod.Status.Phase = "n", corev1.PodRunning
	return r, seen{now: kubetest.Begin, pod: helper.Seen{Pod: pod}, provisioner: by}
}

func provisionerOf(t *testing.T) compiled.Found {
	t.Helper()
	s := newFixture(t)
	by, err := s.req.Provisioners.Find(t.Context(), s.Live, "p")
	if err != nil || by.Provisioner == nil {
		t.Fatalf("%+v, %v", by, err)
	}
	return by
}

// TestDecide: one step follows from what a pass sees. A pod that may still tell the storage goes before its
// PodRevocation does, and nothing is made for what has not asked.
func TestDecide(t *testing.T) {
	by := provisionerOf(t)
	deleted := func(r *moorv1alpha1.PodRevocation) { r.DeletionTimestamp = &metav1.Time{Time: kubetest.Begin} }
	ended := func(phase moorv1alpha1.PodRevocationPhase) func(*moorv1alpha1.PodRevocation, *seen) {
		return func(r *moorv1alpha1.PodRevocation, s *seen) { r.Status.Phase, s.pod.Pod = phase, nil }
	}
	retry := func(value, done string) func(*moorv1alpha1.PodRevocation, *seen) {
		return func(r *moorv1alpha1.PodRevocation, s *seen) {
			ended(isFailed)(r, s)
			r.Annotations, r.Status.Retried = map[string]string{moorv1alpha1.AnnotationRetry: value}, done
		}
	}
	failedAgo := func(ago time.Duration) func(*moorv1alpha1.PodRevocation, *seen) {
		return func(r *moorv1alpha1.PodRevocation, s *seen) {
			retry("1", "1")(r, s)
			r.Status.Failures, r.Status.LastFailure = 2, &metav1.Time{Time: s.now.Add(-ago)}
		}
	}
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.PodRevocation, *seen)
		want   action
		after  time.Duration
		words  string // of a write
	}{
		"it runs":                          {change: func(*moorv1alpha1.PodRevocation, *seen) {}, want: write, after: time.Minute, words: "the revocation pod default/p runs"},
		"it runs, and that is said":        {change: func(r *moorv1alpha1.PodRevocation, _ *seen) { r.Status.Message = "the revocation pod default/p runs" }, want: wait, after: time.Minute},
		"nothing asks for it":              {change: func(_ *moorv1alpha1.PodRevocation, s *seen) { s.unasked = true }, want: retire},
		"nothing asks, and it goes":        {change: func(r *moorv1alpha1.PodRevocation, s *seen) { deleted(r); s.unasked = true }, want: removePod},
		"it goes, and its pod runs":        {change: func(r *moorv1alpha1.PodRevocation, _ *seen) { deleted(r) }, want: removePod},
		"it goes, and its pod is gone":     {change: func(r *moorv1alpha1.PodRevocation, s *seen) { deleted(r); s.pod.Pod = nil }, want: free},
		"it goes, and had no pod":          {change: func(r *moorv1alpha1.PodRevocation, s *seen) { deleted(r); r.Status.Pod, s.pod.Pod = nil, nil }, want: free},
		"it goes, and a stray runs":        {change: func(r *moorv1alpha1.PodRevocation, s *seen) { deleted(r); s.pod.Pod, s.strays = nil, 1 }, want: sweep},
		"it has revoked, its pod is there": {change: func(r *moorv1alpha1.PodRevocation, _ *seen) { r.Status.Phase = isRevoked }, want: removePod},
		"it has revoked":                   {change: ended(isRevoked), want: wait},
		"it has failed":                    {change: failedAgo(time.Second), want: wait, after: 9 * time.Second},
		"it has failed, not due yet":       {change: failedAgo(9999 * time.Millisecond), want: wait, after: time.Millisecond},
		"it has failed, and is due":        {change: failedAgo(10 * time.Second), want: begin},
		"it has failed, its pod is there": {change: func(r *moorv1alpha1.PodRevocation, s *seen) {
			pod := s.pod.Pod
			failedAgo(time.Minute)(r, s)
			s.pod.Pod = pod
		}, want: removePod},
		"it has failed, and goes":     {change: func(r *moorv1alpha1.PodRevocation, s *seen) { failedAgo(time.Minute)(r, s); deleted(r) }, want: free},
		"it is to be tried again":     {change: retry("1", ""), want: begin},
		"it is to be tried once more": {change: retry("2", "1"), want: begin},
		"it was tried again":          {change: failedAgo(0), want: wait, after: 10 * time.Second},
		"the word for it was taken back": {change: func(r *moorv1alpha1.PodRevocation, s *seen) {
			failedAgo(0)(r, s)
			r.Annotations = nil
		}, want: wait, after: 10 * time.Second},
		"it has revoked, whatever is asked": {change: func(r *moorv1alpha1.PodRevocation, s *seen) { retry("1", "")(r, s); r.Status.Phase = isRevoked }, want: wait},
		"it is new":                         {change: ended(""), want: begin},
		"it is new, without a provisioner": {change: func(r *moorv1alpha1.PodRevocation, s *seen) {
			ended("")(r, s)
			s.provisioner = compiled.Found{Words: "it is gone"}
		}, want: write, words: "it is gone"},
		"its record was taken away": {change: func(r *moorv1alpha1.PodRevocation, s *seen) { r.Status.Pod, s.pod.Pod = nil, nil }, want: begin},
		"its pod is not made":       {change: unmade, want: makePod},
		"of a provisioner that is gone": {change: func(r *moorv1alpha1.PodRevocation, s *seen) {
			unmade(r, s)
			s.provisioner = compiled.Found{Words: "it is gone"}
		}, want: write, after: 5 * time.Minute, words: "it is gone"},
		"of a provisioner that is another": {change: func(r *moorv1alpha1.PodRevocation, s *seen) {
			unmade(r, s)
			r.Status.ProvisionerUID = "another"
		}, want: begin},
		"of a template that is another": {change: func(r *moorv1alpha1.PodRevocation, s *seen) {
			unmade(r, s)
			r.Status.Template = "another"
		}, want: begin},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := revoking(by)
			tc.change(r, &s)
			got := decide(r, s)
			if got.do != tc.want || got.after != tc.after || got.do == write && got.next.Message != tc.words {
				t.Errorf("got %d after %s, %q", got.do, got.after, got.next.Message)
			}
		})
	}
}

// unmade has the pod be recorded, and not made yet.
func unmade(r *moorv1alpha1.PodRevocation, s *seen) {
	r.Status.Pod.UID, r.Status.Pod.NodeName, s.pod.Pod = "", "", nil
}

// TestOpen: a staging pod may still be made for a staging of the attachment that was not shut for it, and for no other.
func TestOpen(t *testing.T) {
	a := kubetest.VolumeAttachment(attachment, "v", dpu)
	a.UID = "a"
	staging := func(user, revokedFor types.UID) moorv1alpha1.PodStaging {
		p := moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: "of " + string(user)}}
		p.Spec.User.UID, p.Status.RevokedFor = user, revokedFor
		return p
	}
	for name, tc := range map[string]struct {
		stagings []moorv1alpha1.PodStaging
		want     string
	}{
		"none":                      {},
		"its own":                   {[]moorv1alpha1.PodStaging{staging("a", "")}, "of a"},
		"its own, which is shut":    {[]moorv1alpha1.PodStaging{staging("a", "a")}, ""},
		"its own, shut for another": {[]moorv1alpha1.PodStaging{staging("a", "b")}, "of a"},
		"another's":                 {[]moorv1alpha1.PodStaging{staging("b", "")}, ""},
		"its own, after another's":  {[]moorv1alpha1.PodStaging{staging("b", ""), staging("a", "")}, "of a"},
	} {
		got := ""
		if p := (facts{attachment: a, stagings: tc.stagings}).open(); p != nil {
			got = p.Name
		}
		if got != tc.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// TestNoted: a pod that is there is noted with where it runs and with when it was made: what is staged after that
// makes its success worthless.
func TestNoted(t *testing.T) {
	r, s := revoking(provisionerOf(t))
	r.Status.Pod.UID, r.Status.Pod.NodeName = "", ""
	got := decide(r, s)
	if n := got.next; got.do != write || n.Phase != isRevoking || n.Message != "runs" || n.Pod.UID != "u" || n.Pod.NodeName != "n" || n.Began == nil || !n.Began.Time.Equal(kubetest.Begin.Add(time.Second)) {
		t.Errorf("got %+v", got)
	}
	if r.Status.Began != nil {
		t.Error("what was read is changed")
	}
}

// TestEnded: what a pod has come to is in the status, and is told once, so that it is counted.
func TestEnded(t *testing.T) {
	by := provisionerOf(t)
	for name, tc := range map[string]struct {
		phase   corev1.PodPhase
		want    moorv1alpha1.PodRevocationPhase
		verdict helper.Verdict
		words   string
	}{
		"it succeeded": {corev1.PodSucceeded, isRevoked, helper.Succeeded, ""},
		"it failed":    {corev1.PodFailed, isFailed, helper.Failed, "the revocation pod default/p failed"},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := revoking(by)
			pod := s.pod.Pod
			pod.Status.Phase, pod.Spec.Containers = tc.phase, []corev1.Container{{Name: "c"}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
			got := decide(r, s)
			if got.do != write || got.next.Phase != tc.want || !strings.HasPrefix(got.next.Message, tc.words) || (tc.words == "") != (got.next.Message == "") {
				t.Errorf("got %+v", got)
			}
			if got.ended == nil || got.ended.Verdict != tc.verdict {
				t.Errorf("told is %+v", got.ended)
			}
		})
	}
}

// TestBegun: the record of a pod has what it is made of, and nothing of an earlier one; what cannot be made is a
// failure, which is not tried again by the word that asked for this try.
func TestBegun(t *testing.T) {
	by := provisionerOf(t)
	at := metav1.NewTime(kubetest.Begin)
	for name, tc := range map[string]struct {
		failed bool
		before moorv1alpha1.HelperTries
		err    error
		want   moorv1alpha1.HelperTries
	}{
		"the first":               {},
		"the first, and it fails": {err: errBroken, want: moorv1alpha1.HelperTries{Failures: 1, LastFailure: &at}},
		"asked for":               {failed: true, before: moorv1alpha1.HelperTries{Failures: 3, LastFailure: &at}, want: moorv1alpha1.HelperTries{Retried: "1"}},
		"asked for, and it fails": {failed: true, before: moorv1alpha1.HelperTries{Failures: 3}, err: errBroken, want: moorv1alpha1.HelperTries{Retried: "1", Failures: 1, LastFailure: &at}},
		"by itself":               {failed: true, before: moorv1alpha1.HelperTries{Retried: "1", Failures: 3}, want: moorv1alpha1.HelperTries{Retried: "1", Failures: 3}},
		"by itself, and it fails": {failed: true, before: moorv1alpha1.HelperTries{Retried: "1", Failures: 3}, err: errBroken, want: moorv1alpha1.HelperTries{Retried: "1", Failures: 4, LastFailure: &at}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := revoking(by)
			r.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: "1"}
			r.Status.Began, r.Status.ProvisionerUID, r.Status.Template = &metav1.Time{Time: kubetest.Begin}, "before", "before"
			r.Status.HelperTries = tc.before
			if r.Status.Phase = ""; tc.failed {
				r.Status.Phase = isFailed
			}
			got := begun(r, by, evaluated{template: &corev1.PodTemplateSpec{}, err: tc.err}, kubetest.Begin)
			n := got.next
			if got.do != write || !equality.Semantic.DeepEqual(n.HelperTries, tc.want) {
				t.Errorf("got %+v", got)
			}
			if tc.err != nil {
				if n.Phase != isFailed || n.Message != "the storage cannot be asked: "+tc.err.Error() {
					t.Errorf("got %+v", n)
				}
				return
			}
			if n.Phase != isRevoking || !strings.HasSuffix(n.Message, " is to run") || n.Pod.Name != podName(r) || n.Pod.UID != "" || n.Began != nil || n.ProvisionerUID != by.UID || n.Template != by.Provisioner.Revokes() {
				t.Errorf("got %+v", n)
			}
		})
	}
}

// TestPodName: each try has a pod of its own name, and so has each PodRevocation; one try has one name, before and
// after it is recorded.
func TestPodName(t *testing.T) {
	r := &moorv1alpha1.PodRevocation{ObjectMeta: metav1.ObjectMeta{UID: "r"}}
	first := podName(r)
	r.Status.Phase, r.Annotations = isFailed, map[string]string{moorv1alpha1.AnnotationRetry: "1"}
	again := podName(r)
	r.Status.Phase, r.Status.Retried = isRevoking, "1"
	r.Annotations[moorv1alpha1.AnnotationRetry] = "2" // which is for later
	recorded := podName(r)
	r.Status.Failures = 1
	byItself := podName(r)
	r.Status.Failures, r.UID = 0, "another"
	if another := podName(r); first == again || again != recorded || byItself == again || another == recorded || !strings.HasPrefix(again, first+"-") {
		t.Errorf("%q, %q, %q, %q", first, again, recorded, another)
	}
}
