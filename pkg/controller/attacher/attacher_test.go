package attacher

import (
	"context"
	"strings"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

func TestAttachAndDetach(t *testing.T) {
	w := newFixture(t, volume(), attachment())
	w.driver.onPublish = func() {
		sv := w.get()
		if !cmp.Equal(sv.Finalizers, []string{finalizer}) || sv.Annotations[storagev1alpha1.AnnotationNodeID] != node || sv.Annotations[storagev1alpha1.AnnotationVolumeHandle] != "handle" {
			t.Errorf("before the first call the object holds %v, %v", sv.Finalizers, sv.Annotations)
		}
	}
	w.mustReconcile()
	want := []*csispec.ControllerPublishVolumeRequest{{
		VolumeId: "handle", NodeId: node, VolumeContext: map[string]string{"a": "b"},
		VolumeCapability: &csispec.VolumeCapability{
			AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}},
		},
	}}
	if diff := cmp.Diff(want, w.driver.published, protocmp.Transform()); diff != "" {
		t.Fatalf("publish (-want +got):\n%s", diff)
	}
	wantStatus := storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"path": "/x/handle"}}
	if diff := cmp.Diff(wantStatus, w.get().Status); diff != "" {
		t.Fatalf("status (-want +got):\n%s", diff)
	}
	writes := w.Writes()
	w.mustReconcile()
	w.wantCalls(1, 0)
	if w.Writes() != writes {
		t.Fatal("an attached object was written again")
	}
	w.Remove(w.get())
	w.mustReconcile()
	w.wantCalls(1, 1)
	if u := w.driver.undone[0]; u.GetVolumeId() != "handle" || u.GetNodeId() != node {
		t.Fatalf("unpublish %v", u)
	}
	if sv := w.get(); sv != nil {
		t.Fatalf("the object is still there: %+v", sv)
	}
	w.mustReconcile()
	w.wantCalls(1, 1)
}

// TestStaleCache: the cache still shows the finalizer that a refusal took off;
// a repeat must put it back before it calls the driver.
func TestStaleCache(t *testing.T) {
	w := newFixture(t, volume(), attachment())
	w.r.Timeout = 50 * time.Millisecond
	w.driver.hang = true
	if err := w.reconcile(); err == nil {
		t.Fatal("no error")
	}
	stale := w.get()
	kubetest.Change(w.Cluster, attachment(), func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Finalizers = nil })
	w.r.Timeout = time.Minute
	w.driver.answers(func() {
		if len(w.get().Finalizers) != 1 {
			t.Error("the driver was called without a finalizer")
		}
	})
	w.CacheShows(stale)
	w.mustReconcile()
	if sv := w.get(); len(sv.Finalizers) != 1 || !sv.Status.Attached {
		t.Fatalf("finalizers %v, status %+v", sv.Finalizers, sv.Status)
	}
}

func TestWhoseAttachment(t *testing.T) {
	inline, other := attachment(), volume()
	inline.Spec.Source = storagev1.VolumeAttachmentSource{}
	other.Spec.CSI.Driver = "other.example.com"
	named := func(attacher string) *storagev1alpha1.SVVolumeAttachment {
		sv := attachment()
		sv.Spec.Attacher = attacher
		return sv
	}
	noCSI := volume()
	noCSI.Spec.CSI = nil
	cases := map[string]struct {
		objects   []client.Object
		published int
		words     string
	}{
		"no attacher, our volume":       {objects: []client.Object{attachment(), volume()}, published: 1},
		"our attacher, our volume":      {objects: []client.Object{named(driverName), volume()}, published: 1},
		"another attacher":              {objects: []client.Object{named("other.example.com"), volume()}},
		"another driver's volume":       {objects: []client.Object{attachment(), other}},
		"not a CSI volume":              {objects: []client.Object{attachment(), noCSI}},
		"no volume yet, perhaps ours":   {objects: []client.Object{attachment()}},
		"no volume yet, certainly ours": {objects: []client.Object{named(driverName)}, words: "PersistentVolume pv does not exist"},
		"inline volume":                 {objects: []client.Object{inline}, words: "inline"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, c.objects...)
			w.mustReconcile()
			w.wantCalls(c.published, 0)
			sv := w.get()
			got := ""
			if sv.Status.AttachError != nil {
				got = sv.Status.AttachError.Message
			}
			if !strings.Contains(got, c.words) || (c.words == "") != (got == "") {
				t.Fatalf("attachError %q, want %q", got, c.words)
			}
			if c.published == 0 && len(sv.Finalizers) > 0 {
				t.Fatalf("finalizers %v without a call", sv.Finalizers)
			}
		})
	}
}

func TestWakesWhenTheVolumeAppears(t *testing.T) {
	other := attachment()
	other.Name, other.UID = "other", "u2"
	elsewhere := "pv-2"
	other.Spec.Source.PersistentVolumeName = &elsewhere
	w := newFixture(t, attachment(), other)
	read := 0
	w.r.DPU.Client = interceptor.NewClient(w.Direct, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			read += meta.LenList(list)
			return err
		},
	})
	got := w.r.waitingFor(t.Context(), volume())
	if diff := cmp.Diff([]ctrl.Request{{NamespacedName: key}}, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if read != 1 {
		t.Errorf("%d attachments were read for the one of the volume: at the start that grows with the square of the volumes", read)
	}
}

func TestDeletedBeforeAnyCall(t *testing.T) {
	sv := attachment()
	sv.Finalizers = []string{"another/driver"}
	w := newFixture(t, volume(), sv)
	w.Remove(w.get())
	w.mustReconcile()
	w.wantCalls(0, 0)
	if w.Writes() != 0 {
		t.Fatal("an object that is not held was written")
	}
}

func TestOtherFinalizersSeeItDetached(t *testing.T) {
	sv := attachment()
	sv.Finalizers = []string{"another/driver"}
	w := newFixture(t, volume(), sv)
	w.mustReconcile()
	w.Remove(w.get())
	w.mustReconcile()
	got := w.get()
	if got.Status.Attached || !cmp.Equal(got.Finalizers, []string{"another/driver"}) {
		t.Fatalf("status %+v, finalizers %v", got.Status, got.Finalizers)
	}
	w.mustReconcile()
	w.wantCalls(1, 1)
}

func TestVolumeGoneAtDetach(t *testing.T) {
	t.Run("handle was recorded", func(t *testing.T) {
		w := newFixture(t, volume(), attachment())
		w.mustReconcile()
		w.Remove(volume())
		w.Remove(w.get())
		w.mustReconcile()
		w.wantCalls(1, 1)
		if w.driver.undone[0].GetVolumeId() != "handle" || w.get() != nil {
			t.Fatalf("unpublish %v, object %v", w.driver.undone[0], w.get())
		}
	})
	t.Run("handle is unknown", func(t *testing.T) {
		sv := attachment()
		sv.Finalizers = []string{finalizer} // another attacher's work
		w := newFixture(t, sv)
		w.Remove(w.get())
		if err := w.reconcile(); err == nil {
			t.Fatal("no error")
		}
		if sv := w.get(); sv == nil || !strings.Contains(sv.Status.DetachError.Message, "by hand") {
			t.Fatalf("the object must stay, and say why: %+v", sv)
		}
		w.wantCalls(0, 0)
	})
}

func TestNodeID(t *testing.T) {
	csiNode := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "other.example.com", NodeID: "wrong"}, {Name: driverName, NodeID: "id-7"},
		}},
	}
	w := newFixture(t, volume(), attachment(), csiNode)
	w.mustReconcile()
	w.Remove(csiNode)
	w.Remove(w.get())
	w.mustReconcile()
	if p, u := w.driver.published[0].GetNodeId(), w.driver.undone[0].GetNodeId(); p != "id-7" || u != "id-7" {
		t.Fatalf("published to %q, unpublished from %q", p, u)
	}
}

// TestRepeatNamesTheSameNode: an earlier call may have had an effect on the node
// that it named, whatever the node is called by now.
func TestRepeatNamesTheSameNode(t *testing.T) {
	csiNode := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: "id-7"}}},
	}
	w := newFixture(t, volume(), attachment(), csiNode)
	w.driver.publish = []error{status.Error(codes.Unavailable, "no answer")}
	if err := w.reconcile(); err == nil {
		t.Fatal("no error")
	}
	kubetest.Change(w.Cluster, csiNode, func(n *storagev1.CSINode) { n.Spec.Drivers[0].NodeID = "id-8" })
	w.mustReconcile()
	w.wantCalls(2, 0)
	if first, second := w.driver.published[0].GetNodeId(), w.driver.published[1].GetNodeId(); first != "id-7" || second != "id-7" {
		t.Errorf("published to %q, then to %q", first, second)
	}
}

func TestSecrets(t *testing.T) {
	pv := volume()
	pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "s"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte("hush")}}
	w := newFixture(t, pv, attachment())
	err := w.reconcile()
	if err == nil || len(w.driver.published) != 0 {
		t.Fatalf("attached without the Secret: %v", err)
	}
	w.Add(secret)
	w.mustReconcile()
	w.Remove(w.get())
	w.mustReconcile()
	if p, u := w.driver.published[0].GetSecrets()["k"], w.driver.undone[0].GetSecrets()["k"]; p != "hush" || u != "hush" {
		t.Fatalf("secrets %q, %q", p, u)
	}
}
