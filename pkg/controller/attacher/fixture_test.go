package attacher

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

const (
	driverName = "vendor.example.com"
	finalizer  = "external-attacher/vendor.example.com"
	node       = "dpu-1"
)

func TestMain(m *testing.M) {
	// klog's flush daemon lives as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// fixture is a DPU cluster, a driver, and the reconciler between them.
type fixture struct {
	*testing.T
	*kubetest.Cluster
	driver *fakeDriver
	r      *Reconciler
	stop   func()
	status int // writes of a status
}

var key = types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: "va"}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	w := &fixture{T: t, Cluster: kubetest.NewDPU(t), driver: &fakeDriver{}}
	w.Add(objects...)
	w.AfterWrite(func(verb string, _ client.Object) {
		if verb == "patch status of" {
			w.status++
		}
	})
	connection, stop := w.driver.serve(t)
	w.stop = stop
	w.r = &Reconciler{
		DPU: w.Cluster.Cluster, Driver: connection, DriverName: driverName, Features: Features{Publish: true},
		Timeout: time.Minute, Clock: w.Clock,
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
		ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.DPUNamespace, Name: "va", UID: "u1"},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}
}

func (w *fixture) reconcile() error {
	_, err := w.r.Reconcile(w.Context(), ctrl.Request{NamespacedName: key})
	return err
}

func (w *fixture) mustReconcile() {
	w.Helper()
	if err := w.reconcile(); err != nil {
		w.Fatal(err)
	}
}

// get returns the attachment, nil if it is gone.
func (w *fixture) get() *storagev1alpha1.SVVolumeAttachment {
	w.Helper()
	sv := &storagev1alpha1.SVVolumeAttachment{}
	if !w.Has(sv, key.Name) {
		return nil
	}
	return sv
}

func (w *fixture) wantCalls(published, undone int) {
	w.Helper()
	if p, u := len(w.driver.published), len(w.driver.undone); p != published || u != undone {
		w.Fatalf("%d publishes and %d unpublishes, want %d and %d", p, u, published, undone)
	}
}
