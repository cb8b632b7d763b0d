package attacher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

const (
	driverName = "vendor.example.com"
	finalizer  = "external-attacher/vendor.example.com"
	namespace  = "dpf-operator-system"
	node       = "dpu-1"
)

func TestMain(m *testing.M) {
	// klog's flush daemon lives as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// world is a DPU cluster, a driver, and the reconciler between them.
type world struct {
	*testing.T
	c      client.Client
	driver *fakeDriver
	r      *Reconciler
	stop   func()
	writes int
	status int
}

var key = types.NamespacedName{Namespace: namespace, Name: "va"}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, storagev1alpha1.AddDPUToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{T: t, driver: &fakeDriver{}}
	w.c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&storagev1alpha1.SVVolumeAttachment{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				w.writes++
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				w.writes++
				w.status++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
	connection, stop := w.driver.serve(t)
	w.stop = stop
	w.r = &Reconciler{
		Client: w.c, Live: w.c, Driver: connection, DriverName: driverName, Features: Features{Publish: true},
		Timeout: time.Minute, Clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)),
	}
	return w
}

func volume() *corev1.PersistentVolume {
	block := corev1.PersistentVolumeBlock
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  &block,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "handle", VolumeAttributes: map[string]string{"a": "b"},
			}},
		},
	}
}

func attachment() *storagev1alpha1.SVVolumeAttachment {
	pv := "pv"
	return &storagev1alpha1.SVVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "va", UID: "u1"},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}
}

func (w *world) reconcile() error {
	_, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: key})
	return err
}

func (w *world) mustReconcile() {
	w.Helper()
	if err := w.reconcile(); err != nil {
		w.Fatal(err)
	}
}

// get returns the attachment, nil if it is gone.
func (w *world) get() *storagev1alpha1.SVVolumeAttachment {
	w.Helper()
	sv := &storagev1alpha1.SVVolumeAttachment{}
	err := w.c.Get(context.Background(), key, sv)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return sv
}

func (w *world) delete(o client.Object) {
	w.Helper()
	if err := w.c.Delete(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *world) wantCalls(published, undone int) {
	w.Helper()
	if p, u := len(w.driver.published), len(w.driver.undone); p != published || u != undone {
		w.Fatalf("%d publishes and %d unpublishes, want %d and %d", p, u, published, undone)
	}
}

func TestAttachAndDetach(t *testing.T) {
	w := newWorld(t, volume(), attachment())
	w.driver.onPublish = func() {
		sv := w.get()
		if !cmp.Equal(sv.Finalizers, []string{finalizer}) || sv.Annotations[AnnotationNodeID] != node || sv.Annotations[AnnotationVolumeHandle] != "handle" {
			t.Errorf("before the first call the object holds %v, %v", sv.Finalizers, sv.Annotations)
		}
	}
	w.mustReconcile()
	want := []*csi.ControllerPublishVolumeRequest{{
		VolumeId: "handle", NodeId: node, VolumeContext: map[string]string{"a": "b"},
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		},
	}}
	if diff := cmp.Diff(want, w.driver.published, protocmp.Transform()); diff != "" {
		t.Fatalf("publish (-want +got):\n%s", diff)
	}
	wantStatus := storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"path": "/x/handle"}}
	if diff := cmp.Diff(wantStatus, w.get().Status); diff != "" {
		t.Fatalf("status (-want +got):\n%s", diff)
	}
	writes := w.writes
	w.mustReconcile()
	w.wantCalls(1, 0)
	if w.writes != writes {
		t.Fatal("an attached object was written again")
	}
	w.delete(w.get())
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

// TestPublishErrors: what is left to undo after each kind of error of the first
// call.
func TestPublishErrors(t *testing.T) {
	cases := map[codes.Code]bool{ // code: must be undone at deletion
		codes.InvalidArgument:    false,
		codes.NotFound:           false,
		codes.AlreadyExists:      false,
		codes.FailedPrecondition: false,
		codes.OutOfRange:         false,
		codes.Unimplemented:      false,
		codes.Canceled:           true,
		codes.DeadlineExceeded:   true,
		codes.Unavailable:        true,
		codes.Aborted:            true,
		codes.ResourceExhausted:  true,
		codes.Internal:           true,
		codes.Unknown:            true,
	}
	for code, undo := range cases {
		t.Run(code.String(), func(t *testing.T) {
			w := newWorld(t, volume(), attachment())
			w.driver.publish = []error{status.Error(code, "because")}
			if err := w.reconcile(); err == nil {
				t.Fatal("the error was swallowed: nothing would try again")
			}
			sv := w.get()
			if held := len(sv.Finalizers) == 1; held != undo {
				t.Fatalf("finalizers %v, must be undone: %t", sv.Finalizers, undo)
			}
			e := sv.Status.AttachError
			if e == nil || !strings.Contains(e.Message, "because") || e.Time.Unix() != 1000 || sv.Status.Attached {
				t.Fatalf("status %+v", sv.Status)
			}
			w.delete(sv)
			w.mustReconcile()
			w.wantCalls(1, map[bool]int{true: 1}[undo])
			if w.get() != nil {
				t.Fatal("the object is still there")
			}
		})
	}
}

func TestPublishErrorThenSuccess(t *testing.T) {
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			w := newWorld(t, volume(), attachment())
			w.driver.publish = []error{status.Error(code, "x"), status.Error(code, "x")}
			for range 2 {
				if err := w.reconcile(); err == nil {
					t.Fatal("no error")
				}
			}
			if w.status != 1 {
				t.Fatalf("the same words were written %d times", w.status)
			}
			w.mustReconcile()
			sv := w.get()
			if !sv.Status.Attached || sv.Status.AttachError != nil || len(sv.Finalizers) != 1 {
				t.Fatalf("status %+v, finalizers %v", sv.Status, sv.Finalizers)
			}
		})
	}
}

// TestRefusalAfterUncertainty: a refusal does not undo an earlier call whose
// outcome nobody knows.
func TestRefusalAfterUncertainty(t *testing.T) {
	w := newWorld(t, volume(), attachment())
	w.driver.publish = []error{status.Error(codes.DeadlineExceeded, "slow"), status.Error(codes.FailedPrecondition, "no")}
	for range 2 {
		if err := w.reconcile(); err == nil {
			t.Fatal("no error")
		}
	}
	w.delete(w.get())
	w.mustReconcile()
	w.wantCalls(2, 1)
}

// TestStaleCache: the cache still shows the finalizer that a refusal took off;
// a repeat must put it back before it calls the driver.
func TestStaleCache(t *testing.T) {
	w := newWorld(t, volume(), attachment())
	w.r.Timeout = 50 * time.Millisecond
	w.driver.hang = true
	if err := w.reconcile(); err == nil {
		t.Fatal("no error")
	}
	stale := w.get()
	fresh := stale.DeepCopy()
	fresh.Finalizers = nil
	if err := w.c.Update(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	w.driver.hang, w.r.Timeout = false, time.Minute
	w.driver.onPublish = func() {
		if len(w.get().Finalizers) != 1 {
			t.Error("the driver was called without a finalizer")
		}
	}
	w.r.Client = staleReader{w.c, stale}
	w.mustReconcile()
	if sv := w.get(); len(sv.Finalizers) != 1 || !sv.Status.Attached {
		t.Fatalf("finalizers %v, status %+v", sv.Finalizers, sv.Status)
	}
}

// staleReader shows one attachment as it was.
type staleReader struct {
	client.Client
	sv *storagev1alpha1.SVVolumeAttachment
}

func (s staleReader) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if sv, ok := o.(*storagev1alpha1.SVVolumeAttachment); ok {
		s.sv.DeepCopyInto(sv)
		return nil
	}
	return s.Client.Get(ctx, k, o, opts...)
}

func TestUnpublishErrors(t *testing.T) {
	w := newWorld(t, volume(), attachment())
	w.mustReconcile()
	w.delete(w.get())
	w.driver.unpublish = []error{
		status.Error(codes.Internal, "boom"), status.Error(codes.Internal, "boom"), status.Error(codes.NotFound, "what volume?"),
	}
	for _, want := range []string{"boom", "boom", "what volume?"} {
		if err := w.reconcile(); err == nil {
			t.Fatal("no error")
		}
		sv := w.get()
		if sv == nil || sv.Status.DetachError == nil || !strings.Contains(sv.Status.DetachError.Message, want) {
			t.Fatalf("the object after a failed unpublish: %+v", sv)
		}
	}
	if w.status != 3 { // attached, boom, what volume
		t.Fatalf("%d status writes, want 3", w.status)
	}
	w.mustReconcile()
	if w.get() != nil {
		t.Fatal("the object is still there")
	}
}

func TestDriverAway(t *testing.T) {
	w := newWorld(t, volume(), attachment())
	w.mustReconcile()
	w.stop()
	w.delete(w.get())
	if err := w.reconcile(); err == nil {
		t.Fatal("no error")
	}
	sv := w.get()
	if sv == nil || sv.Status.DetachError == nil || len(sv.Finalizers) != 1 {
		t.Fatalf("without the driver's word the object must stay: %+v", sv)
	}
}

func TestDriverLate(t *testing.T) {
	w := newWorld(t, volume(), attachment())
	w.driver.hang, w.r.Timeout = true, 50*time.Millisecond
	if err := w.reconcile(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if sv := w.get(); len(sv.Finalizers) != 1 {
		t.Fatal("a late driver leaves nothing to undo?")
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
			w := newWorld(t, c.objects...)
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
	w := newWorld(t, attachment(), other)
	got := w.r.waitingFor(t.Context(), volume())
	if diff := cmp.Diff([]ctrl.Request{{NamespacedName: key}}, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestDeletedBeforeAnyCall(t *testing.T) {
	sv := attachment()
	sv.Finalizers = []string{"somebody/else"}
	w := newWorld(t, volume(), sv)
	w.delete(w.get())
	w.mustReconcile()
	w.wantCalls(0, 0)
	if w.writes != 0 {
		t.Fatal("an object that is not held was written")
	}
}

func TestOtherFinalizersSeeItDetached(t *testing.T) {
	sv := attachment()
	sv.Finalizers = []string{"somebody/else"}
	w := newWorld(t, volume(), sv)
	w.mustReconcile()
	w.delete(w.get())
	w.mustReconcile()
	got := w.get()
	if got.Status.Attached || !cmp.Equal(got.Finalizers, []string{"somebody/else"}) {
		t.Fatalf("status %+v, finalizers %v", got.Status, got.Finalizers)
	}
	w.mustReconcile()
	w.wantCalls(1, 1)
}

func TestVolumeGoneAtDetach(t *testing.T) {
	t.Run("handle was recorded", func(t *testing.T) {
		w := newWorld(t, volume(), attachment())
		w.mustReconcile()
		w.delete(volume())
		w.delete(w.get())
		w.mustReconcile()
		w.wantCalls(1, 1)
		if w.driver.undone[0].GetVolumeId() != "handle" || w.get() != nil {
			t.Fatalf("unpublish %v, object %v", w.driver.undone[0], w.get())
		}
	})
	t.Run("handle is unknown", func(t *testing.T) {
		sv := attachment()
		sv.Finalizers = []string{finalizer} // another attacher's work
		w := newWorld(t, sv)
		w.delete(w.get())
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
	w := newWorld(t, volume(), attachment(), csiNode)
	w.mustReconcile()
	w.delete(csiNode)
	w.delete(w.get())
	w.mustReconcile()
	if p, u := w.driver.published[0].GetNodeId(), w.driver.undone[0].GetNodeId(); p != "id-7" || u != "id-7" {
		t.Fatalf("published to %q, unpublished from %q", p, u)
	}
}

func TestSecrets(t *testing.T) {
	pv := volume()
	pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "s"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte("hush")}}
	w := newWorld(t, pv, attachment())
	err := w.reconcile()
	if err == nil || len(w.driver.published) != 0 {
		t.Fatalf("attached without the Secret: %v", err)
	}
	if err := w.c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.mustReconcile()
	w.delete(w.get())
	w.mustReconcile()
	if p, u := w.driver.published[0].GetSecrets()["k"], w.driver.undone[0].GetSecrets()["k"]; p != "hush" || u != "hush" {
		t.Fatalf("secrets %q, %q", p, u)
	}
}

func TestDriverWithoutPublish(t *testing.T) {
	w := newWorld(t, volume(), attachment())
	w.r.Features = Features{}
	w.mustReconcile()
	sv := w.get()
	if !sv.Status.Attached || len(sv.Finalizers) != 0 {
		t.Fatalf("status %+v, finalizers %v", sv.Status, sv.Finalizers)
	}
	w.wantCalls(0, 0)
}

func TestFeatures(t *testing.T) {
	d := &fakeDriver{}
	c, _ := d.serve(t)
	if name, err := c.Name(t.Context()); err != nil || name != driverName {
		t.Fatalf("name %q, %v", name, err)
	}
	if f, err := c.Features(t.Context()); err != nil || f != (Features{}) {
		t.Fatalf("without a controller: %+v, %v", f, err)
	}
	d.caps = []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if f, err := c.Features(t.Context()); err != nil || f != (Features{Publish: true, ReadOnly: true, SingleNodeMultiWriter: true}) {
		t.Fatalf("with everything: %+v, %v", f, err)
	}
}

func TestConnectRefusesAddresses(t *testing.T) {
	for _, bad := range []string{"", "relative/csi.sock", "unix://" + strings.Repeat("/x", 60), "tcp://nowhere"} {
		if c, err := Connect(bad); err == nil {
			_ = c.Close()
			t.Errorf("address %q was accepted", bad)
		}
	}
}
