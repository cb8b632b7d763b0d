package attacher

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
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
	"github.com/moor-storage/moor/internal/kube"
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
		DPU: kube.Cluster{Client: w.c, Live: w.c}, Driver: connection, DriverName: driverName, Features: Features{Publish: true},
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
