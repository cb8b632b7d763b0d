package revocation

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
)

// revoke is one pass of the PodRevocation that is there.
func (s *fixture) revoke() ctrl.Result {
	s.t.Helper()
	result, err := s.rev.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&s.all()[0])})
	if err != nil {
		s.t.Fatal(err)
	}
	return result
}

// TestOnePassBegins: the pod is recorded and made in one pass, which looks again when its time is over.
func TestOnePassBegins(t *testing.T) {
	s := newFixture(t).taken()
	s.does = "hang"
	for len(s.all()) == 0 {
		if err := s.ask(); err != nil {
			t.Fatal(err)
		}
	}
	if s.revoke(); s.made != 1 || s.all()[0].Status.Phase != isRevoking {
		t.Errorf("%d pods were made, %+v", s.made, s.all()[0].Status)
	}
	s.settle()
	if after := s.revoke().RequeueAfter; after <= 0 {
		t.Errorf("it looks again after %s", after)
	}
}

// TestNotHeld: a PodRevocation that is not held is left alone: it is about to go.
func TestNotHeld(t *testing.T) {
	s := hanging(t)
	kubetest.Change(s.Cluster, &s.all()[0], func(r *moorv1alpha1.PodRevocation) {
		r.Finalizers, r.Status = nil, moorv1alpha1.PodRevocationStatus{}
	})
	writes := s.Writes()
	if s.revoke(); s.Writes() != writes {
		t.Error("something was written")
	}
}

// TestUnasked: what its request does not ask for any more goes.
func TestUnasked(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"the request was let go": func(s *fixture) {
			kubetest.Change(s.Cluster, request(), func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Finalizers = []string{"test/another"} })
		},
		"the request is another": func(s *fixture) {
			kubetest.Change(s.Cluster, request(), func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Finalizers = nil })
			s.Add(request())
			kubetest.Change(s.Cluster, request(), func(sv *storagev1alpha1.SVVolumeAttachment) {
				sv.Finalizers = []string{moorv1alpha1.FinalizerPodRevocation}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := hanging(t)
			change(s)
			for range 5 {
				if len(s.all()) > 0 {
					s.revoke()
				}
			}
			if len(s.all()) > 0 || len(s.helpers()) > 0 {
				t.Errorf("left: %+v, %d pods", s.all(), len(s.helpers()))
			}
		})
	}
}

// TestStraysGoFirst: a pod of an earlier try is gone before its PodRevocation is, which is all that knows of it.
func TestStraysGoFirst(t *testing.T) {
	s := hanging(t)
	stray := s.helpers()[0].DeepCopy()
	stray.Name, stray.UID, stray.ResourceVersion = "stray", "", ""
	s.Add(stray)
	s.Remove(&s.all()[0])
	for range 5 {
		if len(s.all()) > 0 {
			s.revoke()
		}
	}
	if len(s.all()) > 0 || len(s.helpers()) > 0 {
		t.Errorf("left: %+v, %d pods", s.all(), len(s.helpers()))
	}
}

// TestToldAgain: who asks for another try is told if that fails too.
func TestToldAgain(t *testing.T) {
	s := newFixture(t).taken()
	s.does = "fail"
	s.settle()
	s.Remove(s.pv())
	for _, value := range []string{"1", "2"} {
		s.Events()
		s.retry(value)
		for range 5 {
			s.revoke()
		}
		if events := s.Events(); len(events) != 1 || !strings.Contains(events[0], "PersistentVolume pvc-1 is gone") {
			t.Errorf("try %s: %q", value, events)
		}
	}
}

// TestCounted: the end of a pod is counted, once.
func TestCounted(t *testing.T) {
	s := newFixture(t).taken()
	reg := prometheus.NewRegistry()
	var err error
	if s.rev.Pods.Metrics, err = helper.NewMetrics(reg); err != nil {
		t.Fatal(err)
	}
	s.settle()
	s.wantWord()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := uint64(0)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			counted += m.GetHistogram().GetSampleCount()
		}
	}
	if counted != 1 {
		t.Errorf("counted %d times", counted)
	}
}

// refusing is an API server that takes no pods.
type refusing struct{ client.Client }

func (refusing) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), errBroken)
}

// broken is a cache that cannot be read.
type broken struct {
	client.Client
	gets, lists bool
}

func (b broken) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if b.gets {
		return errBroken
	}
	return b.Client.Get(ctx, key, o, opts...)
}

func (b broken) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if b.lists {
		return errBroken
	}
	return b.Client.List(ctx, list, opts...)
}

// TestCacheFails: a pass of what a cache does not show has failed, and is not over.
func TestCacheFails(t *testing.T) {
	s := hanging(t)
	of := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&s.all()[0])}
	s.req.Client = broken{Client: s.Client, gets: true}
	if err := s.ask(); !errors.Is(err, errBroken) {
		t.Errorf("the request: %v", err)
	}
	s.rev.Client = broken{Client: s.Client, gets: true}
	if _, err := s.rev.Reconcile(t.Context(), of); !errors.Is(err, errBroken) {
		t.Errorf("the PodRevocation: %v", err)
	}
	s.rev.Client, s.rev.Pods.Client = s.Client, broken{Client: s.Client, lists: true}
	if _, err := s.rev.Reconcile(t.Context(), of); !errors.Is(err, errBroken) {
		t.Errorf("its pods: %v", err)
	}
}

// unmade has the pod be recorded, and not made.
func (s *fixture) unmade() {
	s.t.Helper()
	s.Remove(&s.helpers()[0])
	kubetest.Change(s.Cluster, &s.all()[0], func(r *moorv1alpha1.PodRevocation) { r.Status.Pod.UID, r.Status.Pod.NodeName = "", "" })
	s.Events()
}

// TestUnmadeReadsFail: a read that is not answered fails the pass that would make the pod; it is no reason to give it up.
func TestUnmadeReadsFail(t *testing.T) {
	s := hanging(t)
	s.unmade()
	reader, failed := &failing{Reader: s.Live}, 0
	s.rev.Live, s.rev.Pods.Live = reader, reader
	for n := 1; ; n++ {
		reader.left = n
		_, err := s.rev.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&s.all()[0])})
		if reader.left > 0 {
			break
		}
		if failed++; !errors.Is(err, errBroken) || s.all()[0].Status.Phase != isRevoking {
			t.Errorf("read %d is not answered, and the pass says %v: %+v", n, err, s.all()[0].Status)
		}
	}
	if failed < 5 || len(s.helpers()) != 1 {
		t.Errorf("%d reads were tried, %d pods", failed, len(s.helpers()))
	}
}

// TestUnmade: a pod that is recorded and was not made is made, by what the templates come to now. What cannot be made
// any more is a failure, told once.
func TestUnmade(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fixture)
		words  string
	}{
		"it can be made":         {change: func(*fixture) {}},
		"the volume is gone":     {func(s *fixture) { s.Remove(s.pv()) }, "cannot be made: PersistentVolume pvc-1 is gone"},
		"the API server refuses": {func(s *fixture) { s.rev.Pods.Client = refusing{s.Client} }, "cannot be made: "},
		"it is another by now":   {func(s *fixture) { s.says("{{ handle }}", "more") }, ""},
		"its claim is not there": {func(s *fixture) { s.says("{{ get_pvc('absent', 'default').metadata.name }}") }, "absent"},
	} {
		t.Run(name, func(t *testing.T) {
			s := hanging(t)
			s.unmade()
			tc.change(s)
			s.revoke()
			r := s.all()[0]
			if tc.words == "" {
				if r.Status.Phase != isRevoking || len(s.helpers()) != 1 {
					t.Errorf("%+v, %d pods", r.Status, len(s.helpers()))
				}
				return
			}
			if r.Status.Phase != isFailed || !strings.Contains(r.Status.Message, tc.words) || len(s.helpers()) > 0 {
				t.Errorf("%+v, %d pods", r.Status, len(s.helpers()))
			}
			s.revoke()
			if events := s.Events(); len(events) != 1 || !strings.Contains(events[0], tc.words) {
				t.Errorf("told: %q", events)
			}
		})
	}
}

// TestToldOfTheAttachment: a person finds the end of a revocation at the attachment.
func TestToldOfTheAttachment(t *testing.T) {
	s := hanging(t)
	want := corev1.ObjectReference{
		APIVersion: "storage.dpu.nvidia.com/v1alpha1", Kind: "VolumeAttachment", Namespace: kubetest.DPUNamespace, Name: attachment, UID: kubetest.AttachmentUID(attachment),
	}
	if got := attachmentOf(&s.all()[0]); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
}
