package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// Inventory is everything that a volume leaves behind somewhere, by name.
type Inventory []string

// Take lists it: objects of all clusters, Leases of hosts and DPUs that are gone, what each SNAP service has, loop
// devices and files of the storage target.
func Take(ctx context.Context, bed *devcluster.Cluster, c Clients) (Inventory, error) {
	out, err := ofPods(ctx, bed, c)
	if err != nil {
		return nil, err
	}
	host, err := InHost(ctx, c.Host)
	if err != nil {
		return nil, err
	}
	out = append(out, host...)
	for _, of := range bed.DPUClusters() {
		dpu, err := InDPUCluster(ctx, of.Cluster, c.In(of.Cluster))
		if err != nil {
			return nil, err
		}
		out = append(out, dpu...)
	}
	for _, dpu := range bed.DPUs() {
		devices, err := devices(ctx, dpu)
		if err != nil {
			return nil, err
		}
		out = append(out, devices...)
	}
	files, err := files()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(slices.Values(append(out, files...))), nil
}

// InHost lists the objects of the host cluster.
func InHost(ctx context.Context, c client.Client) (Inventory, error) {
	return objects(ctx, devcluster.HostCluster, c,
		&corev1.PersistentVolumeList{}, &storagev1.VolumeAttachmentList{},
		&storagev1alpha1.DPUVolumeList{}, &storagev1alpha1.DPUVolumeAttachmentList{},
		&moorv1alpha1.DPUVolumeSnapshotList{}, &snapshotv1.VolumeSnapshotContentList{},
		&groupsnapshotv1beta2.VolumeGroupSnapshotList{}, &groupsnapshotv1beta2.VolumeGroupSnapshotContentList{})
}

// InDPUCluster lists those of a DPU cluster.
func InDPUCluster(ctx context.Context, name string, c client.Client) (Inventory, error) {
	return objects(ctx, name, c,
		&corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{},
		&storagev1alpha1.VolumeList{}, &storagev1alpha1.VolumeAttachmentList{},
		&storagev1alpha1.SVVolumeAttachmentList{}, &moorv1alpha1.WriterClaimList{},
		&moorv1alpha1.StorageSnapshotList{}, &snapshotv1.VolumeSnapshotList{}, &snapshotv1.VolumeSnapshotContentList{},
		&groupsnapshotv1beta2.VolumeGroupSnapshotList{}, &groupsnapshotv1beta2.VolumeGroupSnapshotContentList{})
}

// objects lists what a cluster has of these kinds, and the Leases of hosts and DPUs that are gone.
func objects(ctx context.Context, where string, c client.Client, lists ...client.ObjectList) (Inventory, error) {
	var out Inventory
	left, err := orphanedLeases(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, name := range left {
		out = append(out, fmt.Sprintf("%s: Lease %s", where, name))
	}
	for _, list := range lists {
		names, err := names(ctx, c, list)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			out = append(out, fmt.Sprintf("%s: %T %s", where, list, name))
		}
	}
	return out, nil
}

// Less lists what is here and not in other.
func (i Inventory) Less(other Inventory) []string {
	var out []string
	for _, item := range i {
		if _, found := slices.BinarySearch(other, item); !found {
			out = append(out, item)
		}
	}
	return out
}

// ofPods lists what there is of pods as volumes, in the clusters where they are deployed.
func ofPods(ctx context.Context, bed *devcluster.Cluster, c Clients) (Inventory, error) {
	var out Inventory
	var failed error
	sites := map[string][]string{}
	if bed.Options().Pods {
		sites[devcluster.HostCluster] = bed.Nodes()
	}
	if bed.Options().DPUPods {
		for _, of := range bed.DPUClusters() {
			sites[of.Cluster] = of.DPUs
		}
	}
	for cluster, nodes := range sites {
		directories, err := podDirectories(nodes)
		objects, more := podObjects(ctx, cluster, c.In(cluster))
		out, failed = append(append(out, directories...), objects...), errors.Join(failed, err, more)
	}
	return out, failed
}

// podObjects lists the objects of pods as volumes of one cluster.
func podObjects(ctx context.Context, where string, c client.Client) (Inventory, error) {
	var out Inventory
	var failed error
	for _, list := range []client.ObjectList{&pavv1alpha1.PavProvisionerList{}, &moorv1alpha1.PodVolumeList{}, &moorv1alpha1.PodStagingList{}, &moorv1alpha1.PodRevocationList{}} {
		found, err := names(ctx, c, list)
		failed = errors.Join(failed, err)
		for _, name := range found {
			out = append(out, fmt.Sprintf("%s: %T %s", where, list, name))
		}
	}
	return out, failed
}

// podDirectories lists what pods that work for volumes share with their nodes.
func podDirectories(nodes []string) (Inventory, error) {
	var out Inventory
	for _, node := range nodes {
		found, err := filepath.Glob(filepath.Join(layout.MachinePath(node, layout.MachineDataDir), "pav", "*"))
		if err != nil {
			return nil, fmt.Errorf("list what pods left on %s: %w", node, err)
		}
		for _, path := range found {
			out = append(out, fmt.Sprintf("%s: /pav of %s", node, filepath.Base(path)))
		}
	}
	return out, nil
}

func names(ctx context.Context, c client.Client, list client.ObjectList, of ...client.ListOption) ([]string, error) {
	if err := c.List(ctx, list, of...); err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	var out []string
	err := meta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, o.(client.Object).GetName())
		return nil
	})
	return out, err
}

// orphanedLeases lists the Leases of heartbeats whose DPUStorageNode is gone.
func orphanedLeases(ctx context.Context, c client.Client) ([]string, error) {
	nodes, err := names(ctx, c, &moorv1alpha1.DPUStorageNodeList{})
	if err != nil {
		return nil, err
	}
	leases, err := names(ctx, c, &coordinationv1.LeaseList{}, client.InNamespace(Namespace))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(leases, func(lease string) bool {
		node, ok := moorv1alpha1.LeaseOf(lease)
		return !ok || slices.Contains(nodes, node)
	}), nil
}

// devices lists subsystems, hot-plugged functions and bdevs of one DPU.
func devices(ctx context.Context, dpu string) ([]string, error) {
	snap := SNAP(dpu)
	subsystems, err := snap.NvmeSubsystemList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the subsystems of %s: %w", dpu, err)
	}
	var out []string
	for _, s := range subsystems {
		if strings.Contains(s.NQN, ":dpf-") {
			out = append(out, fmt.Sprintf("%s: subsystem %s", dpu, s.NQN))
		}
	}
	functions, err := snap.EmulationFunctionList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the functions of %s: %w", dpu, err)
	}
	for _, f := range functions {
		if f.Hotplugged {
			out = append(out, fmt.Sprintf("%s: hot-plugged function %s", dpu, f.VUID))
		}
	}
	bdevs, err := snap.BdevGetBdevs(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list the bdevs of %s: %w", dpu, err)
	}
	for _, b := range bdevs {
		out = append(out, fmt.Sprintf("%s: bdev %s", dpu, b.Name))
	}
	shared, err := shared(ctx, dpu)
	return append(out, shared...), err
}

// shared lists the fsdevs, devices and functions of virtio-fs of one DPU.
func shared(ctx context.Context, dpu string) ([]string, error) {
	snap := SNAP(dpu)
	fsdevs, err := snap.FsdevGetFsdevs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the fsdevs of %s: %w", dpu, err)
	}
	var out []string
	for _, d := range fsdevs {
		out = append(out, fmt.Sprintf("%s: fsdev %s", dpu, d.Name))
	}
	devices, err := snap.VirtioFSDevices(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the virtio-fs devices of %s: %w", dpu, err)
	}
	for _, d := range devices {
		out = append(out, fmt.Sprintf("%s: virtio-fs device %s", dpu, d.Name))
	}
	functions, err := snap.VirtioFSFunctions(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the virtio-fs functions of %s: %w", dpu, err)
	}
	for _, f := range functions {
		out = append(out, fmt.Sprintf("%s: virtio-fs function %s", dpu, f.VUID))
	}
	return out, nil
}

// files lists volumes of the storage target and loop devices over emulated
// namespaces.
func files() ([]string, error) {
	var out []string
	for _, kind := range []string{"*.img", "*.dir", "*.users"} {
		volumes, err := filepath.Glob(filepath.Join(layout.TargetSource(), kind))
		if err != nil {
			return nil, err
		}
		second, err := filepath.Glob(filepath.Join(layout.TargetSource(), devcluster.SecondDPUCluster, kind))
		if err != nil {
			return nil, err
		}
		for _, v := range append(volumes, second...) {
			out = append(out, "target: "+filepath.Base(v))
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, l := range loops {
		backing, err := os.ReadFile(l)
		if err == nil && strings.Contains(string(backing), layout.EmulatorFilePrefix) {
			out = append(out, "loop device over "+filepath.Base(strings.TrimSpace(string(backing))))
		}
	}
	return out, nil
}

// ReadyReplica is the host on which a DPUVolume has a replica that is ready; "" if there is none.
func ReadyReplica(ctx context.Context, host client.Client, volume string) (string, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := host.List(ctx, &list, client.InNamespace(Namespace)); err != nil {
		return "", fmt.Errorf("find the replica of volume %s: %w", volume, err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		if a.Spec.DPUVolumeName == volume && a.Spec.Role == storagev1alpha1.RoleReplica &&
			meta.IsStatusConditionTrue(a.Status.Conditions, storagev1alpha1.ConditionPreEmulated) {
			return a.Spec.DPUNodeName, nil
		}
	}
	return "", nil
}
