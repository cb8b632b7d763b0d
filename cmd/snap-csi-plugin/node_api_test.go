//go:build api

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/mount-utils"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kubelet"
	nodecsi "github.com/moor-storage/moor/pkg/node/csi"
	"github.com/moor-storage/moor/pkg/node/csi/deadmounts"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/test/api/apiserver"
)

const nodeAccount = "snap-csi-plugin-node"

// deadMount is a mount of a volume that a pod has, and that is dead.
func deadMount(t *testing.T, volume, pod string) deadmounts.Options {
	t.Helper()
	at := kubelet.Target{Root: t.TempDir(), Volume: "pv", Pod: types.UID(pod)}
	if err := os.MkdirAll(at.Path(), 0o750); err != nil {
		t.Fatal(err)
	}
	data := fmt.Appendf(nil, `{"driverName":"d","volumeHandle":%q}`, volume)
	if err := os.WriteFile(at.Data(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return deadmounts.Options{
		Driver: "d",
		Mounts: func() ([]nodecsi.Mount, error) {
			return []nodecsi.Mount{{MountPoint: mount.MountPoint{Path: at.Path()}}}, nil
		},
		Broken: func(string, nodecsi.Mount) error { return errors.New("the device is gone") },
		Ready:  func(context.Context, string) bool { return true },
	}
}

// nodeKubeconfig writes one that acts as the hosts' account on a node.
func (b *bed) nodeKubeconfig(config *rest.Config, node string) string {
	b.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nodeAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node},
	}}
	b.must(b.SubResource("token").Create(b.t.Context(), account, request))
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	out.CurrentContext = "x"
	path := filepath.Join(b.t.TempDir(), "kubeconfig")
	b.must(clientcmd.WriteToFile(*out, path))
	return path
}

// TestNodeAttach: with the rights and under the policies of the manifests, a
// node beats, asks for a volume, promotes its replica, gives both back, and
// gets nothing of another node.
func TestNodeAttach(t *testing.T) {
	b := &bed{One: apiserver.StartOne(t, apiserver.Host), t: t}
	b.Deploy(".", "attach-node")
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	b.must(b.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-a"}}))
	b.must(b.Create(t.Context(), &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vol"}, Spec: storagev1alpha1.DPUVolumeSpec{
		DPUStoragePolicyName: "p", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}))
	o := options{namespace: namespace, kubeconfig: b.nodeKubeconfig(b.Config, "a"), attach: dpf.AttachNode}
	o.api.QPS, o.api.Burst = 100, 200
	o.node.id, o.node.maxVolumes, o.node.beatEvery = "a", 16, 100*time.Millisecond
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	beating := make(chan error, 1)
	mounts := deadmounts.New(deadMount(t, "vol", "pod-uid"))
	go mounts.Run(ctx)
	heart, err := o.connectBeat(newDPUView(&nodecsi.Limit{}), mounts, nil)
	b.must(err)
	go func() { beating <- heart.Start(ctx) }()
	attachments, err := o.nodeAttachments(ctx, cancel, &kube.Informers{})
	b.must(err)
	b.until("a beat", func() bool {
		n := &moorv1alpha1.DPUStorageNode{}
		return b.Get(t.Context(), client.ObjectKey{Name: "a"}, n) == nil && n.Status.Host != nil && n.Status.Host.Sequence > 1
	})
	b.until("the dead mount is told", func() bool {
		n := &moorv1alpha1.DPUStorageNode{}
		if b.Get(t.Context(), client.ObjectKey{Name: "a"}, n) != nil || len(n.Status.Host.DeadMounts) != 1 {
			return false
		}
		d := n.Status.Host.DeadMounts[0]
		return d.Volume == "vol" && slices.Equal(d.Pods, []types.UID{"pod-uid"}) && !d.Since.IsZero()
	})
	spec := provisioner.AttachSpec{VolumeID: "vol", Node: "a", AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}}
	b.asks(attachments, spec)
	b.must(attachments.Detach(t.Context(), "vol", "a"))
	b.must(b.Create(t.Context(), &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-vol", Labels: map[string]string{storagev1alpha1.LabelReplicaOf: "vol"}},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: "a", DPUVolumeName: "vol", Role: storagev1alpha1.RoleReplica,
			FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
	}))
	b.asks(attachments, spec)
	for range 2 {
		b.must(attachments.Detach(t.Context(), "vol", "a"))
	}
	if left := b.attachments(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	spec.Node = "b"
	b.must(b.Create(t.Context(), &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-b"}}))
	if _, err := attachments.Attach(t.Context(), spec); !apierrors.IsForbidden(err) || provisioner.Uncertain(err) {
		t.Errorf("asked for another node: %v", err)
	}
	cancel(nil)
	b.must(<-beating)
}

// asks attaches, with the DPU of the node behind it.
func (b *bed) asks(attachments provisioner.Attachments, spec provisioner.AttachSpec) {
	b.t.Helper()
	shown := make(chan struct{})
	go func() { defer close(shown); b.show(spec.Node) }()
	got, err := attachments.Attach(b.t.Context(), spec)
	<-shown
	b.must(err)
	if got.PublishContext["nv-pciDeviceAddress"] == "" || b.attachments()[spec.Node].Spec.Requester != storagev1alpha1.RequesterNode {
		b.t.Errorf("attached %+v, with publish context %v", b.attachments()[spec.Node].Spec, got.PublishContext)
	}
}
