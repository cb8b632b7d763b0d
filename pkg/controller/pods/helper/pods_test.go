package helper

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// work is a PodVolume that was read, and its pod as it is ordered.
func work(t *testing.T) (*kubetest.Cluster, Pods, *moorv1alpha1.PodVolume, Order) {
	t.Helper()
	c := kubetest.NewPods(t)
	raw := runtime.RawExtension{Raw: []byte("{}")}
	v := &moorv1alpha1.PodVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: moorv1alpha1.PodVolumeSpec{ProvisionerName: "p", Claim: raw, Class: raw}}
	c.Add(v)
	v, _ = kubetest.Read(c, v)
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}, {Name: "d", TerminationMessagePolicy: corev1.TerminationMessageReadFile}}}}
	template.Namespace = "ns"
	return c, Pods{Cluster: c.Cluster, Root: "/root"}, v, Order{Phase: pods.Creation, Record: Record(template, "pod", c.Clock.Now()), Template: template, Directory: "dir"}
}

// TestMake: the pod is that of the record, found by its labels, and tells its last words.
func TestMake(t *testing.T) {
	c, p, v, o := work(t)
	o.Template.Namespace = "changed since"
	if err := p.Make(t.Context(), OfVolume(v), o); err != nil {
		t.Fatal(err)
	}
	pod, found := kubetest.Read(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}})
	if !found || !metav1.IsControlledBy(pod, v) || pod.Labels[moorv1alpha1.LabelPodVolume] != string(v.UID) || pod.Labels[moorv1alpha1.LabelHelperPhase] != "creation" {
		t.Errorf("%+v", pod.ObjectMeta)
	}
	if s := pod.Spec; s.Volumes[0].HostPath.Path != "/root/dir" || s.Containers[0].TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError || s.Containers[1].TerminationMessagePolicy != corev1.TerminationMessageReadFile {
		t.Errorf("%+v", s)
	}
	if err := p.Make(t.Context(), OfVolume(v), o); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestMakeByAnOldReading: no pod is made for what was recorded once.
func TestMakeByAnOldReading(t *testing.T) {
	for name, change := range map[string]func(*kubetest.Cluster, *moorv1alpha1.PodVolume){
		"changed": func(c *kubetest.Cluster, v *moorv1alpha1.PodVolume) {
			kubetest.Change(c, v.DeepCopy(), func(v *moorv1alpha1.PodVolume) { v.Status.Message = "x" })
		},
		"gone": func(c *kubetest.Cluster, v *moorv1alpha1.PodVolume) { c.Remove(v.DeepCopy()) },
		"replaced": func(c *kubetest.Cluster, v *moorv1alpha1.PodVolume) {
			c.Remove(v.DeepCopy())
			again := v.DeepCopy()
			again.UID, again.ResourceVersion = "", ""
			c.Add(again)
		},
	} {
		c, p, v, o := work(t)
		change(c, v)
		if err := p.Make(t.Context(), OfVolume(v), o); !apierrors.IsConflict(err) || c.Writes() != 0 {
			t.Errorf("%s: %v, %d writes", name, err, c.Writes())
		}
	}
}

// TestRefusal: which errors of the API server would come again.
func TestRefusal(t *testing.T) {
	pod := schema.GroupResource{Resource: "pods"}
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"invalid":      {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true},
		"not admitted": {apierrors.NewForbidden(pod, "p", errors.New("violates PodSecurity")), true},
		"no namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns"), true},
		"overload":     {apierrors.NewTooManyRequests("later", 1), false},
		"no answer":    {errors.New("connection refused"), false},
	} {
		var refused *Refused
		if got := errors.As(refusal(tt.err), &refused); got != tt.want {
			t.Errorf("%s: refused %v", name, got)
		}
	}
	_, p, v, o := work(t)
	o.Template.Spec.Volumes = []corev1.Volume{{Name: pods.VolumeName}}
	var refused *Refused
	if err := p.Make(t.Context(), OfVolume(v), o); !errors.As(err, &refused) || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("a volume of the name of ours: %v", err)
	}
}

// TestSee: a pod is what the record means if the UID is that, or, before that is known, if it was made
// for this work; what the cache does not show is looked for in the API server.
func TestSee(t *testing.T) {
	c, p, v, o := work(t)
	look := func(want, foreign bool) {
		t.Helper()
		s, err := p.See(t.Context(), OfVolume(v), o.Record)
		if err != nil || (s.Pod != nil) != want || s.Foreign != foreign {
			t.Errorf("%+v, %v", s, err)
		}
	}
	look(false, false)
	if err := p.Make(t.Context(), OfVolume(v), o); err != nil {
		t.Fatal(err)
	}
	pod, _ := kubetest.Read(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}})
	c.CacheHides(pod)
	look(true, false)
	Note(o.Record, pod)
	look(true, false)
	c.Remove(pod)
	c.CacheShows(pod)
	look(true, false) // what is there is believed of the cache
	c.CacheIsCurrent()
	look(false, false)
	c.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}})
	look(false, false)
	o.Record.UID = ""
	look(false, true)
}

// TestStrays: what a status does not record is swept, and nothing else.
func TestStrays(t *testing.T) {
	c, p, v, o := work(t)
	other := o
	other.Record = &moorv1alpha1.HelperPod{Namespace: "ns", Name: "other"}
	for _, each := range []Order{o, other} {
		if err := p.Make(t.Context(), OfVolume(v), each); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range []func() ([]corev1.Pod, error){
		func() ([]corev1.Pod, error) { return p.Strays(t.Context(), OfVolume(v), o.Record) },
		func() ([]corev1.Pod, error) { return p.LiveStrays(t.Context(), OfVolume(v), o.Record) },
	} {
		if got, err := list(); err != nil || len(got) != 1 || got[0].Name != "other" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	strays, _ := p.Strays(t.Context(), OfVolume(v), o.Record)
	if err := p.Sweep(t.Context(), OfVolume(v), strays); err != nil {
		t.Fatal(err)
	}
	var left corev1.PodList
	if err := c.Direct.List(t.Context(), &left); err != nil || len(left.Items) != 1 || left.Items[0].Name != "pod" {
		t.Errorf("%+v, %v", left.Items, err)
	}
}

// unread is a cache that cannot be read.
type unread struct{ client.Reader }

func (unread) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("connection refused")
}

// TestClaims: a claim that is not there is the template's matter, and one that cannot be read is not.
func TestClaims(t *testing.T) {
	c := kubetest.NewPods(t)
	c.Add(kubetest.PVC("there", "pv"))
	claims := &Claims{Reader: c.Client}
	if got, err := claims.Claim(t.Context(), "default", "there"); err != nil || got.Spec.VolumeName != "pv" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := claims.Claim(t.Context(), "default", "gone"); err == nil || err.Error() != "PersistentVolumeClaim default/gone does not exist" || claims.Err != nil {
		t.Errorf("%v, %v", err, claims.Err)
	}
	claims.Reader = unread{}
	if _, err := claims.Claim(t.Context(), "default", "there"); err == nil || claims.Err == nil {
		t.Errorf("%v, %v", err, claims.Err)
	}
}

// TestMetrics: pods are counted by phase and result, and without metrics nothing is.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewMetrics(reg); err == nil {
		t.Error("registered twice")
	}
	for _, p := range []Pods{{}, {Metrics: m}} {
		p.Ended(pods.Creation, recordOf("u"), Judgement{Verdict: Succeeded}, begin.Add(3*time.Second))
		p.Ended(pods.Creation, recordOf("u"), Judgement{Verdict: Failed}, begin.Add(3*time.Second))
		p.Metrics.Lost()
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("%v, %v", families, err)
	}
	for _, f := range families {
		switch *f.Name {
		case "moor_helper_pod_seconds":
			if len(f.Metric) != 2 || f.Metric[0].Histogram.GetSampleCount() != 1 || f.Metric[0].Histogram.GetSampleSum() != 3 {
				t.Errorf("%v", f)
			}
		case "moor_helper_pods_lost_total":
			if f.Metric[0].Counter.GetValue() != 1 {
				t.Errorf("%v", f)
			}
		default:
			t.Errorf("%v", f)
		}
	}
}
