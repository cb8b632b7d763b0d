//go:build api

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

const (
	ns   = kit.Namespace
	node = "dpu-1"
)

// world is an API server with the rights of the manifest, an emulated SNAP
// service, a vendor's plugin behind a real socket, and the whole process.
type world struct {
	*apiserver.One
	t          *testing.T
	kubeconfig string
	root       string
	stopSNAP   func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := os.MkdirTemp("", "nd") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	w := &world{t: t, root: root}
	w.startServer()
	w.must(os.MkdirAll(filepath.Dir(w.snapSocket()), 0o755))
	w.startSNAP()
	t.Cleanup(func() { w.stopSNAP() })
	plugin := vendorplugin.NewServer(vendorplugin.Options{
		Info: vendorplugin.Info{Name: "local", Version: "1.0"}, Capabilities: vendorplugin.Capabilities{Block: true, Get: true, List: true},
		Host: nullHost{snaprpc.New(w.snapSocket(), time.Second)}, Logger: logr.Discard(),
	})
	apiserver.InBackground(w.t, "plugin", func(ctx context.Context) error {
		return plugin.Serve(ctx, filepath.Join(root, "p", "local", "dpu.sock"))
	})
	return w
}

func (w *world) snapSocket() string { return filepath.Join(w.root, "s", "nvidia", "snap.sock") }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) startServer() {
	w.t.Helper()
	w.One = apiserver.StartOne(w.t, apiserver.DPU)
	w.Deploy("snap-node-driver-rbac.yaml")
	w.kubeconfig = w.Kubeconfig("snap-node-driver")
}

func (w *world) startSNAP() {
	w.t.Helper()
	e, err := snapemulator.New(snapemulator.Options{Name: node, Socket: w.snapSocket(), VFs: 4, Log: logr.Discard()})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	w.stopSNAP = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("emulator: %v", err)
		}
		w.stopSNAP = func() {}
	}
}

func (w *world) startDriver(flags ...string) {
	w.t.Helper()
	var o options
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.bind(fs)
	w.must(fs.Parse(append([]string{
		"--node-name=" + node, "--kubeconfig=" + w.kubeconfig, "--plugin-root=" + filepath.Join(w.root, "p"),
		"--provider-root=" + filepath.Join(w.root, "s"), "--resync=200ms", "--heartbeat-period=500ms", "--lease-drain=1s", "--leader-elect=true",
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
	}, flags...)))
	apiserver.InBackground(w.t, "snap-node-driver", o.run)
}

func (w *world) create(obj client.Object) {
	w.t.Helper()
	if err := w.Create(context.Background(), obj); err != nil {
		w.t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
}

// until reads obj until ok; gone is told by exists false.
func until[T client.Object](w *world, what string, obj T, ok func(exists bool) bool) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		exists, err := kube.Find(ctx, w, client.ObjectKeyFromObject(obj), obj)
		return err == nil && ok(exists), err
	})
	if err != nil {
		w.t.Fatalf("%s: %v; last seen %+v", what, err, obj)
	}
}

func (w *world) visible() int {
	w.t.Helper()
	all, err := snaprpc.New(w.snapSocket(), time.Second).NvmeSubsystemList(context.Background())
	w.must(err)
	n := 0
	for _, s := range all {
		for _, c := range s.Controllers {
			n += len(c.Namespaces)
		}
	}
	return n
}

func (w *world) claim(status *moorv1alpha1.WriterClaimStatus) {
	w.t.Helper()
	c := &moorv1alpha1.WriterClaim{ObjectMeta: metav1.ObjectMeta{Name: "v1", Namespace: ns}, Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "v1"}}
	w.must(client.IgnoreAlreadyExists(w.Create(context.Background(), c)))
	w.must(w.Get(context.Background(), client.ObjectKeyFromObject(c), c))
	c.Status = status
	w.must(w.Status().Update(context.Background(), c))
}

// TestLifeOnAServer takes one volume through all that may happen to it, with
// the rights, selectors and patches of a real API server.
func TestLifeOnAServer(t *testing.T) {
	w := newWorld(t)
	w.startDriver()
	a := w.attachment()
	until(w, "waits for the claim", a, func(bool) bool { return a.Status.Message != "" && a.Status.DPU.DeviceName != "" })
	if a.Status.DPU.Attached || w.visible() != 0 {
		t.Fatalf("shown without a claim: %+v", a.Status)
	}
	granted := &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: node, Attachment: a.Name, Epoch: 1}
	w.claim(granted)
	_, err := kube.Patch(t.Context(), w, a, func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 1 })
	w.must(err)
	until(w, "attached", a, func(bool) bool { return a.Status.DPU.Attached && a.Status.Message == "" })
	first := *a.Status.DPU.DeepCopy()

	beat := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	until(w, "beats", beat, func(bool) bool {
		d := beat.Status.DPU
		return d != nil && d.Sequence > 2 && d.SNAPReady && len(d.Plugins) == 1 && d.Plugins[0].Ready &&
			slices.Contains(d.Functions, moorv1alpha1.FunctionCount{Type: "vf", Total: 4, Free: 3})
	})

	w.stopSNAP()
	until(w, "beats without SNAP", beat, func(bool) bool { return !beat.Status.DPU.SNAPReady })
	w.startSNAP()
	w.settled("shown again after a restart of SNAP", func() bool { return w.visible() == 1 })
	// The status says "attached" from before the restart too: the incarnation tells when it speaks of the new service,
	// and the kept epoch, which is on record before a controller is made, goes when it is served.
	until(w, "attached again", a, func(bool) bool {
		return a.Status.DPU.Attached && a.Status.Message == "" && a.Status.DPU.Incarnation != first.Incarnation && a.Status.DPU.KeptEpoch == nil
	})
	if a.Status.DPU.Undrained != "" && a.Status.DPU.Undrained != first.Incarnation {
		t.Fatalf("after a restart of SNAP: incarnation %s, then %+v", first.Incarnation, a.Status.DPU)
	}
	first.Incarnation, first.Undrained = a.Status.DPU.Incarnation, a.Status.DPU.Undrained
	if diff := cmp.Diff(first, a.Status.DPU); diff != "" {
		t.Fatalf("after a restart of SNAP (-before +after):\n%s", diff)
	}

	w.claim(&moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: node, Attachment: a.Name, Epoch: 1})
	until(w, "withdrawn when fenced", a, func(bool) bool { return !a.Status.DPU.Attached && a.Status.DPU.RetiredEpoch == 1 })
	if w.visible() != 0 {
		t.Fatal("still visible though not attached")
	}
	// The claim leaves what this DPU watches, and comes back.
	w.claim(&moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1})
	until(w, "knows that it holds nothing", a, func(bool) bool { return strings.Contains(a.Status.Message, "no DPU holds it") })
	_, err = kube.Patch(t.Context(), w, a, func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica })
	w.must(err)
	until(w, "made ready as a replica", a, func(bool) bool { return a.Status.DPU.PreEmulated && a.Status.Message == "" })
	if w.visible() != 0 || a.Status.DPU.Attached {
		t.Fatal("a replica is visible")
	}
	granted.Epoch = 2
	w.claim(granted)
	_, err = kube.Patch(t.Context(), w, a, func(a *storagev1alpha1.VolumeAttachment) {
		a.Spec.Role, a.Spec.Epoch = storagev1alpha1.RolePrimary, 2
	})
	w.must(err)
	until(w, "attached under the claim", a, func(bool) bool { return a.Status.DPU.Attached })

	w.must(w.Delete(t.Context(), a))
	until(w, "gone", a, func(exists bool) bool { return !exists })
	bdevs, err := snaprpc.New(w.snapSocket(), time.Second).BdevGetBdevs(t.Context(), "")
	if w.must(err); w.visible()+len(bdevs) != 0 {
		t.Fatalf("left behind: %d exposures, %+v", w.visible(), bdevs)
	}
}

func (w *world) settled(what string, ok func() bool) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

func (w *world) attachment() *storagev1alpha1.VolumeAttachment {
	w.t.Helper()
	w.create(&storagev1alpha1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "v1", Namespace: ns},
		Spec: storagev1alpha1.VolumeSpec{
			Request: storagev1alpha1.VolumeRequest{VolumeMode: ptr.To(corev1.PersistentVolumeBlock), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
			Volume:  storagev1alpha1.VolumeSource{StorageVendorPluginName: "local", ReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
		},
	})
	a := &storagev1alpha1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-v1", Namespace: ns},
		Spec: storagev1alpha1.VolumeAttachmentSpec{
			NodeName: node, Source: storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{Name: "v1", Namespace: ns}},
			FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
	}
	w.create(a)
	_, err := kube.PatchStatus(context.Background(), w, a, func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageAttached = true })
	w.must(err)
	return a
}

// nullHost is a vendor whose devices are null bdevs of the SNAP service.
type nullHost struct{ rpc *snaprpc.Client }

func (h nullHost) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	err := h.rpc.Call(ctx, "bdev_null_create", map[string]any{"name": spec.VolumeID, "num_blocks": 64, "block_size": 512}, nil)
	if err != nil && !snaprpc.IsExists(err) {
		return provisioner.Device{}, fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return provisioner.Device{VolumeID: spec.VolumeID, Name: spec.VolumeID, Mode: spec.Mode}, nil
}

func (h nullHost) Close(ctx context.Context, _, device string) error {
	err := h.rpc.Call(ctx, "bdev_null_delete", map[string]any{"name": device}, nil)
	if err != nil && !snaprpc.IsNotFound(err) {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}

func (h nullHost) Lookup(ctx context.Context, volumeID string) (provisioner.Device, error) {
	_, err := h.rpc.BdevGetBdevs(ctx, volumeID)
	if snaprpc.IsNotFound(err) {
		return provisioner.Device{}, provisioner.ErrNotFound
	}
	return provisioner.Device{VolumeID: volumeID, Name: volumeID, Mode: provisioner.Block}, err
}

func (h nullHost) List(ctx context.Context) ([]provisioner.Device, error) {
	all, err := h.rpc.BdevGetBdevs(ctx, "")
	var out []provisioner.Device
	for _, b := range all {
		out = append(out, provisioner.Device{VolumeID: b.Name, Name: b.Name})
	}
	return out, err
}
