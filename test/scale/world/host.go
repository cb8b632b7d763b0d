package world

import (
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/scale/fleet"
)

const (
	driver       = "csi.snap.nvidia.com"
	vendorDriver = "local.csi.moor.dev"
	// policy and storageClass of deploy/examples/storage.yaml.
	policy       = "local"
	storageClass = "snap-nvme"
	// Users is the namespace of pods and claims.
	Users       = "default"
	volumeBytes = 1 << 30
)

// MakeHost makes what an installer and two kubelets say of host number i.
func (c *Clusters) MakeHost(ctx context.Context, i int) error {
	of := fleet.NamesOf(i)
	storage := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: of.Host}}
	storage.Spec.DPUName = of.DPU
	host := fleet.Node(of.Host, map[string]string{corev1.LabelTopologyZone: Zone(i)})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: of.Host}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &of.Host, ptr.To[int32](40)
	leases := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}}
	if _, err := kube.Create(ctx, c.Unlimited.Host, leases); err != nil {
		return err
	}
	dpu := fleet.Node(of.DPU, map[string]string{kit.PlaceKey: kit.PlaceShared})
	for _, made := range []struct {
		to client.Client
		o  client.Object
	}{
		{c.Unlimited.Host, host},
		{c.Unlimited.Host, lease},
		{c.Unlimited.DPU, dpu},
		{c.Unlimited.Host, csiNode(of.Host, driver)},
		{c.Unlimited.DPU, csiNode(of.DPU, vendorDriver, kit.PlaceKey)},
		{c.Unlimited.Host, storage},
	} {
		if err := made.to.Create(ctx, made.o); err != nil {
			return fmt.Errorf("make host %s: %w", of.Host, err)
		}
	}
	return nil
}

func csiNode(name, driver string, keys ...string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: driver, NodeID: name, TopologyKeys: keys, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](64)},
		}}},
	}
}

// AwaitHost returns when a host can be used: its heartbeats are heard, and the policy
// of its volumes has a vendor.
func (c *Clusters) AwaitHost(ctx context.Context, name string) error {
	return kit.Until(ctx, "host "+name+" is ready", func(ctx context.Context) (bool, error) {
		node, rule := &moorv1alpha1.DPUStorageNode{}, &storagev1alpha1.DPUStoragePolicy{}
		if err := c.Unlimited.Host.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return false, err
		}
		err := c.Unlimited.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: policy}, rule)
		return meta.IsStatusConditionTrue(node.Status.Conditions, moorv1alpha1.ConditionReady) &&
			meta.IsStatusConditionTrue(rule.Status.Conditions, storagev1alpha1.ConditionReady), err
	})
}

// User uses volumes as Kubernetes does for pods.
type User struct {
	Clusters *Clusters
	Driver   csispec.ControllerClient
}

// Made is a volume that was made.
type Made struct {
	Name    string
	context map[string]string
}

func capability() *csispec.VolumeCapability {
	return &csispec.VolumeCapability{
		AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// Make makes a volume, its claim and its PersistentVolume.
func (u *User) Make(ctx context.Context, name string) (Made, error) {
	c := u.Clusters.Unlimited.Host
	size := corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(volumeBytes, resource.BinarySI)}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: Users, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(storageClass), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}
	if err := c.Create(ctx, claim); err != nil {
		return Made{}, fmt.Errorf("make claim %s: %w", name, err)
	}
	got, err := u.Driver.CreateVolume(ctx, &csispec.CreateVolumeRequest{
		Name: name, Parameters: map[string]string{"policy": policy, "functionType": "vf", "hotplugFunction": "false", "failover": "Fence"},
		CapacityRange: &csispec.CapacityRange{RequiredBytes: volumeBytes}, VolumeCapabilities: []*csispec.VolumeCapability{capability()},
	})
	if err != nil {
		return Made{}, fmt.Errorf("make volume %s: %w", name, err)
	}
	v := got.GetVolume()
	err = fleet.BindClaim(ctx, c, claim, corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: v.GetVolumeId(), FSType: "ext4", VolumeAttributes: v.GetVolumeContext()})
	return Made{Name: v.GetVolumeId(), context: v.GetVolumeContext()}, err
}

// Attach lets a host use a volume, and returns when the driver says that it can.
func (u *User) Attach(ctx context.Context, v Made, host string) (map[string]string, error) {
	answer, err := u.Driver.ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{
		VolumeId: v.Name, NodeId: host, VolumeCapability: capability(), VolumeContext: v.context,
	})
	if err != nil {
		return nil, fmt.Errorf("attach %s to %s: %w", v.Name, host, err)
	}
	return answer.GetPublishContext(), nil
}

// Run makes the pod that uses a volume on a host, and all that Kubernetes makes for
// it.
func (u *User) Run(ctx context.Context, name, host string) error {
	v, err := u.Make(ctx, name)
	if err != nil {
		return err
	}
	c := u.Clusters.Unlimited.Host
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Users, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: host, Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/app:v1", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
		},
	}
	asked := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: VolumeAttachment(v.Name, host), Finalizers: []string{attacherFinalizer}},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: host, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv-" + name)}},
	}
	for _, o := range []client.Object{pod, asked} {
		if err := c.Create(ctx, o); err != nil {
			return fmt.Errorf("run pod %s: %w", name, err)
		}
	}
	published, err := u.Attach(ctx, v, host)
	if err != nil {
		return err
	}
	if _, err := kube.PatchStatus(ctx, c, asked, func(a *storagev1.VolumeAttachment) { a.Status.Attached, a.Status.AttachmentMetadata = true, published }); err != nil {
		return err
	}
	_, err = kube.PatchStatus(ctx, c, pod, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	return err
}
