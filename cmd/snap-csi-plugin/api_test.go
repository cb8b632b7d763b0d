//go:build api

package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

const namespace = kit.Namespace

// bed is an API server with the host cluster's kinds, and the controller on it
// with the rights of the manifest and no others.
type bed struct {
	*apiserver.One
	plugin
	t *testing.T
}

// plugin is a controller as its sidecars and the kubelet have it.
type plugin struct {
	csi      csispec.ControllerClient
	identity csispec.IdentityClient
	// health is the address of /metrics, /healthz and /readyz.
	health string
}

func start(t *testing.T) *bed {
	b := &bed{One: apiserver.StartOne(t, apiserver.Host), t: t}
	b.run() // without rights: no list is answered
	b.aliveOnly()
	b.Deploy("snap-csi-plugin-rbac.yaml")
	b.until("ready", b.ready)
	if code, text := b.asked("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz of a plugin that is ready: %d %s", code, text)
	}
	_, err := b.csi.ListVolumes(t.Context(), &csispec.ListVolumesRequest{})
	b.must(err)
	return b
}

// run runs the process' whole wiring in this one, until the test ends.
func (b *bed) run() {
	b.t.Helper()
	var o options
	ctrl.SetLogger(klog.Background())
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.bind(fs)
	b.must(fs.Parse(b.flags()))
	apiserver.InBackground(b.t, "snap-csi-plugin", o.run)
}

// flags are those of a controller to which the bed's calls go from now on.
func (b *bed) flags() []string {
	b.t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	b.must(err)
	b.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b.health, err = freeport.Address()
	b.must(err)
	socket := "unix://" + filepath.Join(dir, "s")
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	b.must(err)
	b.t.Cleanup(func() { _ = conn.Close() })
	b.csi, b.identity = csispec.NewControllerClient(conn), csispec.NewIdentityClient(conn)
	return []string{"--mode=controller", "--kubeconfig=" + b.Kubeconfig("snap-csi-plugin-controller"), "--bind-address=" + socket, "--metrics-bind-address=" + b.health, "--insecure-metrics"}
}

// ready asks as a sidecar does before it asks for anything else.
func (b *bed) ready() bool {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	answer, err := b.identity.Probe(ctx, &csispec.ProbeRequest{}, grpc.WaitForReady(true))
	b.must(err)
	return answer.GetReady().GetValue()
}

// asked is what the health server answers.
func (b *bed) asked(path string) (code int, text string) {
	b.t.Helper()
	answer, err := http.Get("http://" + b.health + path)
	b.must(err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	b.must(err)
	return answer.StatusCode, string(body)
}

// aliveOnly checks that while a list is not answered the plugin lives, and says that
// it is not ready and what it waits for.
func (b *bed) aliveOnly() {
	b.t.Helper()
	if b.ready() {
		b.t.Fatal("ready, and no list was answered")
	}
	if code, text := b.asked("/healthz"); code != http.StatusOK {
		b.t.Errorf("/healthz: %d %s", code, text)
	}
	code, text := b.asked("/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "the cache of ") || !strings.Contains(text, "is not filled yet") {
		b.t.Errorf("/readyz: %d %s, want the cache that is waited for", code, text)
	}
	_, err := b.csi.ListVolumes(b.t.Context(), &csispec.ListVolumesRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the cache of ") {
		b.t.Errorf("ListVolumes: %v, want Unavailable with the cache that is waited for", err)
	}
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// create makes an object and its status.
func (b *bed) create(o client.Object) {
	b.t.Helper()
	want := o.DeepCopyObject().(client.Object)
	b.must(b.Create(b.t.Context(), o))
	want.SetResourceVersion(o.GetResourceVersion())
	want.SetUID(o.GetUID())
	b.must(b.Status().Update(b.t.Context(), want))
}

func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	err := wait.PollUntilContextTimeout(b.t.Context(), 20*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func (b *bed) attachments() map[string]storagev1alpha1.DPUVolumeAttachment {
	b.t.Helper()
	var list storagev1alpha1.DPUVolumeAttachmentList
	b.must(b.List(b.t.Context(), &list))
	out := map[string]storagev1alpha1.DPUVolumeAttachment{}
	for _, a := range list.Items {
		out[a.Spec.DPUNodeName] = a
	}
	return out
}

// show is the DPU of a node.
func (b *bed) show(node string) {
	b.t.Helper()
	b.until("show on "+node, func() bool {
		a, there := b.attachments()[node]
		if !there || a.Spec.Role != storagev1alpha1.RolePrimary {
			return false
		}
		yes := true
		a.Status = storagev1alpha1.DPUVolumeAttachmentStatus{DPUAttached: &yes, DPU: &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2"}}
		return b.Status().Update(b.t.Context(), &a) == nil
	})
}

// publish asks for the volume on a node, again as external-attacher does while the driver's
// cache has not heard of that node.
func (b *bed) publish(node string) {
	b.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); b.show(node) }()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	var err error
	b.until("the driver knows node "+node, func() bool {
		_, err = b.csi.ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{
			VolumeId: "vol", NodeId: node, VolumeCapability: capability(),
		}, grpc.WaitForReady(true))
		return status.Code(err) != codes.NotFound
	})
	<-done
	b.must(err)
}

func capability() *csispec.VolumeCapability {
	return &csispec.VolumeCapability{
		AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// nodes makes hosts a, b and c with a DPU each, and a pod with the volume that could run on c alone.
func (b *bed) nodes() {
	b.t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		b.create(node)
		b.must(b.Get(b.t.Context(), client.ObjectKeyFromObject(node), node))
		node.Spec.Taints = nil // admission adds the one of a node that is not ready
		b.must(b.Update(b.t.Context(), node))
		b.create(&moorv1alpha1.DPUStorageNode{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-" + name},
			Status: moorv1alpha1.DPUStorageNodeStatus{
				DPU: &moorv1alpha1.DPUState{
					Heartbeat: moorv1alpha1.Heartbeat{Time: metav1.Now()}, SNAPReady: true,
					Host: &moorv1alpha1.HostObservation{Alive: true, Since: metav1.Now()},
				},
				Host: &moorv1alpha1.HostState{Heartbeat: moorv1alpha1.Heartbeat{Time: metav1.Now()}},
			},
		})
	}
	b.create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "claim"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: podvolume.DefaultDriver, VolumeHandle: "vol"}},
	}})
	b.must(b.Create(b.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}))
	b.must(b.Create(b.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"kubernetes.io/hostname": "c"}, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}},
	}}))
}

// TestReplica goes through the life of a volume with one replica, with a real
// API server and the rights of the manifest.
func TestReplica(t *testing.T) {
	b := start(t)
	b.refuse()
	b.nodes()
	b.provision()
	b.publish("a")
	b.replicated()
	was := b.attachments()["c"].UID
	b.unpublish("a")
	b.until("whom the replica stays for", b.staying)
	b.publish("c")
	if got := b.attachments()["c"]; got.UID != was {
		t.Error("the replica was not promoted, but made anew")
	}
	b.until("words on the missing replica", func() bool {
		s := b.read().Status.Replicas
		return s != nil && s.PrimaryGoneSince == nil && s.Missing == 1 && s.Message != ""
	})
	again := b.attachments()["c"]
	again.Spec.Role = storagev1alpha1.RoleReplica
	if err := b.Update(t.Context(), &again); err == nil {
		t.Error("a primary was made a replica again")
	}
}

// staying reports whether the volume has no primary, and a replica that stays for its pod.
func (b *bed) staying() bool {
	s := b.read().Status.Replicas
	return s != nil && strings.HasSuffix(s.Message, "stay for pod default/p")
}

// replicated waits for the replica of the volume.
func (b *bed) replicated() {
	b.t.Helper()
	b.until("a replica where the pod could run", func() bool {
		c, there := b.attachments()["c"]
		return there && c.Spec.Role == storagev1alpha1.RoleReplica && len(b.attachments()) == 2
	})
}

func (b *bed) read() *storagev1alpha1.DPUVolume {
	b.t.Helper()
	v := &storagev1alpha1.DPUVolume{}
	b.must(b.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: "vol"}, v))
	return v
}

func request(shares string) *csispec.CreateVolumeRequest {
	return &csispec.CreateVolumeRequest{
		Name: "vol", VolumeCapabilities: []*csispec.VolumeCapability{capability()},
		Parameters: map[string]string{"policy": "p", "maxShares": shares},
	}
}

func (b *bed) refuse() {
	b.t.Helper()
	_, err := b.csi.CreateVolume(b.t.Context(), request("none"), grpc.WaitForReady(true))
	if status.Code(err) != codes.InvalidArgument {
		b.t.Errorf("maxShares=none: %v", err)
	}
}

// unpublish detaches the volume from a node. There is no snap-host-controller, which lets
// the attachment go.
func (b *bed) unpublish(node string) {
	b.t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := b.csi.ControllerUnpublishVolume(b.t.Context(), &csispec.ControllerUnpublishVolumeRequest{VolumeId: "vol", NodeId: node})
		done <- err
	}()
	b.until("the attachment is to go", func() bool {
		a, there := b.attachments()[node]
		if !there || a.DeletionTimestamp.IsZero() {
			return !there
		}
		b.must(kube.RemoveFinalizers(b.t.Context(), b, &a, storagev1alpha1.FinalizerDPUVolumeAttachment))
		return true
	})
	b.must(<-done)
}

// provision makes volume vol with one replica; the controllers behind bind it.
func (b *bed) provision() {
	b.t.Helper()
	made := make(chan error, 1)
	go func() {
		_, err := b.csi.CreateVolume(b.t.Context(), request("2"), grpc.WaitForReady(true))
		made <- err
	}()
	b.until("the volume", func() bool {
		v := &storagev1alpha1.DPUVolume{}
		if b.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: "vol"}, v) != nil {
			return false
		}
		v.Status = storagev1alpha1.DPUVolumeStatus{
			Phase: storagev1alpha1.DPUVolumeBound,
			State: &storagev1alpha1.DPUVolumeState{VolumeInfo: &storagev1alpha1.VolumeInfo{Capacity: v.Spec.Resources.Requests}},
		}
		return b.Status().Update(b.t.Context(), v) == nil
	})
	b.must(<-made)
	if r := b.read().Spec.Replication; r == nil || r.MaxShares != 2 || r.MaxMountReplicaCount != 1 {
		b.t.Fatalf("replication %+v", r)
	}
}
