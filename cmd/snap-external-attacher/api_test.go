//go:build api

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	controllercsi "github.com/moor-storage/moor/pkg/controller/csi"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

const (
	namespace = kit.Namespace
	driver    = "vendor.example.com"
)

// startServer runs an API server of the DPU cluster, and returns an administrator's client and
// the kubeconfig of the manifest's account.
func startServer(t *testing.T) (client.Client, string) {
	t.Helper()
	s := apiserver.StartOne(t, apiserver.DPU)
	s.Deploy("snap-external-attacher-rbac.yaml")
	kubeconfig := s.Kubeconfig("snap-external-attacher")
	return s, kubeconfig
}

// startDriver serves a CSI controller over a platform in memory.
func startDriver(t *testing.T, f *provisionertest.Fake) (endpoint string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	endpoint = "unix://" + filepath.Join(dir, "csi.sock")
	apiserver.InBackground(t, "the driver", func(ctx context.Context) error {
		return csiserver.Serve(ctx, endpoint, func(s *grpc.Server) {
			csispec.RegisterIdentityServer(s, csiserver.NewIdentity(driver, "1", nil, csispec.PluginCapability_Service_CONTROLLER_SERVICE))
			csispec.RegisterControllerServer(s, controllercsi.New(controllercsi.Options{
				Platform: provisioner.Platform{Volumes: f.Platform().Volumes, Attachments: f.Platform().Attachments}, BlockOnly: true,
			}))
			controllercsi.RegisterFencing(s, willing{})
		}, csiserver.Options{})
	})
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return endpoint
}

// willing is a storage that fences whatever it is asked to.
type willing struct{}

func (willing) Fence(context.Context, string, int64) error { return nil }

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// until reads the attachment until ok; one that is gone is nil.
func until(t *testing.T, c client.Client, what string, ok func(*storagev1alpha1.SVVolumeAttachment) bool) {
	t.Helper()
	sv := &storagev1alpha1.SVVolumeAttachment{}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		found, err := kube.Find(ctx, c, client.ObjectKey{Namespace: namespace, Name: "va"}, sv)
		if !found {
			return err == nil && ok(nil), err
		}
		return ok(sv), nil
	})
	if err != nil {
		t.Fatalf("not in time: %s; the attachment is %+v", what, sv)
	}
}

func volume(handle string) *corev1.PersistentVolume {
	block := corev1.PersistentVolumeBlock
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &block,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle},
			},
		},
	}
}

// TestLife: the whole process, with the rights of the manifest, over a real API
// server: a volume that comes late, a driver that fails in each way, detach.
func TestLife(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	c, kubeconfig := startServer(t)
	f := provisionertest.NewFake()
	endpoint := startDriver(t, f)
	v, err := f.Platform().Volumes.Create(t.Context(), provisioner.VolumeSpec{
		Name: "one", CapacityBytes: 1 << 20, Mode: provisioner.Block, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.FailNext(provisionertest.FaceAttachments, "Attach", provisioner.ErrInUse, provisioner.ErrUnavailable)
	f.FailNext(provisionertest.FaceAttachments, "Detach", provisioner.ErrUnavailable)
	o := &options{
		csiAddress: endpoint, kubeconfig: kubeconfig, namespace: namespace, timeout: time.Minute,
		flags: kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 5, SyncPeriod: 10 * time.Hour, Rate: kube.Rate{QPS: 100, Burst: 200}},
	}
	o.retry.Start, o.retry.Max = 200*time.Millisecond, time.Second
	apiserver.InBackground(t, "snap-external-attacher", o.run)

	pv := "pv"
	sv := &storagev1alpha1.SVVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "va"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: provisionertest.NodeA,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
		},
	}
	create(t, c, sv)
	until(t, c, "it says that the volume is missing", func(sv *storagev1alpha1.SVVolumeAttachment) bool {
		return sv != nil && sv.Status.AttachError != nil && strings.Contains(sv.Status.AttachError.Message, "PersistentVolume pv does not exist")
	})
	create(t, c, volume(v.ID))
	until(t, c, "attached", func(sv *storagev1alpha1.SVVolumeAttachment) bool {
		return sv != nil && sv.Status.Attached && sv.Status.AttachError == nil && sv.Status.AttachmentMetadata["fake/node"] == provisionertest.NodeA
	})
	if n := len(f.CallsTo(provisionertest.FaceAttachments, "Attach")); n != 3 {
		t.Errorf("%d attaches, want 3: a refusal, a failure, a success", n)
	}
	a := fenced(t, c)
	end(t, c, a)
	if err := c.Delete(t.Context(), sv); err != nil {
		t.Fatal(err)
	}
	until(t, c, "gone", func(sv *storagev1alpha1.SVVolumeAttachment) bool { return sv == nil })
	if n := len(f.CallsTo(provisionertest.FaceAttachments, "Detach")); n != 2 {
		t.Errorf("%d detaches, want 2: a failure, a success", n)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
		t.Fatal(err)
	}
	if w := a.Status.Revocation; w == nil || w.AttachmentUID != a.UID || w.NodeID != provisionertest.NodeA || w.Time.IsZero() {
		t.Errorf("it does not say that it revoked: %+v", w)
	}
}

// fenced makes the VolumeAttachment of the request, whose device is opened under epochs,
// and returns when the attacher says that the storage has fenced its epoch.
func fenced(t *testing.T, c client.Client) *storagev1alpha1.VolumeAttachment {
	t.Helper()
	a := &storagev1alpha1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "va", Finalizers: []string{storagev1alpha1.FinalizerWriterClaim}},
		Spec: storagev1alpha1.VolumeAttachmentSpec{
			Epoch: 3, NodeName: provisionertest.NodeA, FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
	}
	create(t, c, a)
	if _, err := kube.PatchStatus(t.Context(), c, a, func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.OpenEpoch = new(int64) }); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(a), a)
		return err == nil && a.Status.Fence != nil && a.Status.Fence.Epoch == 3 && a.Status.Fence.AttachmentUID == a.UID, err
	})
	if err != nil {
		t.Fatalf("not in time: fenced below epoch 3; the VolumeAttachment is %+v", a.Status)
	}
	return a
}

// end deletes the VolumeAttachment while its claim may be held; snap-controller has
// noticed that.
func end(t *testing.T, c client.Client, a *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	if err := c.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.PatchStatus(t.Context(), c, a, func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = true }); err != nil {
		t.Fatal(err)
	}
}
