package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/kit"
)

const (
	// prefix begins the name of every volume that a benchmark makes.
	prefix = "bench-"
	// namespace holds the pods and claims.
	namespace = "moor-bench"
	// storageClass and policy of deploy/examples/storage.yaml.
	storageClass = "snap-nvme"
	policy       = "local"

	volumeBytes = 32 << 20
	// patience bounds every single wait.
	patience = 5 * time.Minute
	// atOnce is how many objects are made or removed at once where that is
	// not what is measured.
	atOnce = 50
)

// storage applies vendor, policy and StorageClass and waits for the policy.
func (b *bench) storage(ctx context.Context) error {
	if err := kit.Apply(ctx, b.clients.Host, filepath.Join(b.bed.Root(), "deploy", "examples", "storage.yaml")); err != nil {
		return err
	}
	return kit.Until(ctx, "DPUStoragePolicy "+policy+" is ready", func(ctx context.Context) (bool, error) {
		o := &storagev1alpha1.DPUStoragePolicy{}
		err := b.clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: policy}, o)
		return meta.IsStatusConditionTrue(o.Status.Conditions, storagev1alpha1.ConditionReady), err
	})
}

// volume is one made through the CSI controller.
type volume struct {
	id      string
	context map[string]string
}

func capability() *csispec.VolumeCapability {
	return &csispec.VolumeCapability{
		AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// wish is what kind of volume is wanted.
type wish struct {
	// parameters are those of a StorageClass, without the policy.
	parameters map[string]string
	bytes      int64
	// source is what it is a copy of, if of anything.
	source *csispec.VolumeContentSource
}

// plain is the volume that is wanted where nothing else is said.
func plain() wish { return wish{bytes: volumeBytes} }

// create makes n volumes and returns when all of them are bound.
func (b *bench) create(ctx context.Context, n int, w wish) ([]volume, error) {
	parameters := map[string]string{"policy": policy}
	maps.Copy(parameters, w.parameters)
	out := make([]volume, n)
	err := each(n, func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		name := fmt.Sprintf("%s%d-%d", prefix, time.Now().UnixNano(), i)
		answer, err := b.driver.CreateVolume(ctx, &csispec.CreateVolumeRequest{
			Name: name, Parameters: parameters, VolumeContentSource: w.source,
			CapacityRange:      &csispec.CapacityRange{RequiredBytes: w.bytes},
			VolumeCapabilities: []*csispec.VolumeCapability{capability()},
		})
		if err != nil {
			return fmt.Errorf("create volume %s: %w", name, err)
		}
		out[i] = volume{id: answer.GetVolume().GetVolumeId(), context: answer.GetVolume().GetVolumeContext()}
		return nil
	})
	return out, err
}

// device is what an attach leads to.
type device struct {
	// node is the index of the host.
	node  int
	block hostdev.Block
}

// attach lets a node use the volume; it returns when the device is on the
// host: in its sysfs, with its size and its device file.
func (b *bench) attach(ctx context.Context, v volume, node int) (device, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := b.bed.Nodes()[node]
	answer, err := b.driver.ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{
		VolumeId: v.id, NodeId: name, VolumeCapability: capability(), VolumeContext: v.context,
	})
	if err != nil {
		return device{}, fmt.Errorf("attach %s to %s: %w", v.id, name, err)
	}
	nsid, err := hostdev.ParseNamespaceID(answer.GetPublishContext()["nv-nvmeNsID"])
	if err != nil {
		return device{}, fmt.Errorf("attach %s to %s: %w", v.id, name, err)
	}
	shared := layout.SharedDir(node + 1)
	finder := &hostdev.Finder{Roots: hostdev.Roots{Sysfs: filepath.Join(shared, "sys"), Dev: filepath.Join(shared, "dev")}}
	block, err := finder.Wait(ctx, answer.GetPublishContext()["nv-pciDeviceAddress"], nsid)
	if err != nil {
		return device{}, fmt.Errorf("attach %s to %s: it is not on the host: %w", v.id, name, err)
	}
	return device{node: node, block: block}, nil
}

func (b *bench) detach(ctx context.Context, v volume, node int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := b.bed.Nodes()[node]
	_, err := b.driver.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: name})
	if err != nil {
		return fmt.Errorf("detach %s from %s: %w", v.id, name, err)
	}
	return nil
}

// clear removes everything that benchmarks make, in the order in which the
// chain lets go of it, and waits until it is gone.
func (b *bench) clear(ctx context.Context) error {
	ns := &corev1.Namespace{}
	ns.Name = namespace
	if err := client.IgnoreNotFound(b.clients.Host.Delete(ctx, ns)); err != nil {
		return fmt.Errorf("delete namespace %s: %w", namespace, err)
	}
	err := kit.Until(ctx, "namespace "+namespace+" is gone", func(ctx context.Context) (bool, error) {
		err := b.clients.Host.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
		return err != nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	err = kit.Until(ctx, "the volumes of its claims are gone", func(ctx context.Context) (bool, error) {
		var list corev1.PersistentVolumeList
		err := b.clients.Host.List(ctx, &list)
		return !slices.ContainsFunc(list.Items, func(o corev1.PersistentVolume) bool {
			return o.Spec.ClaimRef != nil && o.Spec.ClaimRef.Namespace == namespace
		}), err
	})
	if err != nil {
		return err
	}
	xfs := &storagev1.StorageClass{}
	xfs.Name = xfsClass
	if err := client.IgnoreNotFound(b.clients.Host.Delete(ctx, xfs)); err != nil {
		return fmt.Errorf("delete StorageClass %s: %w", xfsClass, err)
	}
	return b.clearVolumes(ctx)
}

// clearVolumes removes attachments first: a volume that is attached stays.
func (b *bench) clearVolumes(ctx context.Context) error {
	ours := func(o client.Object) bool {
		if a, ok := o.(*storagev1alpha1.DPUVolumeAttachment); ok {
			return strings.HasPrefix(a.Spec.DPUVolumeName, prefix)
		}
		return strings.HasPrefix(o.GetName(), prefix)
	}
	if err := b.remove(ctx, &storagev1alpha1.DPUVolumeAttachmentList{}, ours); err != nil {
		return err
	}
	if err := b.remove(ctx, &moorv1alpha1.DPUVolumeSnapshotList{}, ours); err != nil {
		return err
	}
	return b.remove(ctx, &storagev1alpha1.DPUVolumeList{}, ours)
}

// remove deletes the objects of a kind that ours picks and waits until none of
// them is left.
func (b *bench) remove(ctx context.Context, list client.ObjectList, ours func(client.Object) bool) error {
	objects, err := b.list(ctx, list, ours)
	if err != nil || len(objects) == 0 {
		return err
	}
	err = each(len(objects), func(i int) error {
		if err := client.IgnoreNotFound(b.clients.Host.Delete(ctx, objects[i])); err != nil {
			return fmt.Errorf("delete %s: %w", objects[i].GetName(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return kit.Until(ctx, fmt.Sprintf("%d of %T are gone", len(objects), list), func(ctx context.Context) (bool, error) {
		left, err := b.list(ctx, list, ours)
		return len(left) == 0, err
	})
}

func (b *bench) list(ctx context.Context, list client.ObjectList, ours func(client.Object) bool) ([]client.Object, error) {
	if err := b.clients.Host.List(ctx, list, client.InNamespace(kit.Namespace)); err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	var out []client.Object
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if object, ok := o.DeepCopyObject().(client.Object); ok && ours(object) {
			out = append(out, object)
		}
		return nil
	})
	return out, err
}

// each calls f for 0..n-1, atOnce at a time, and returns the first error.
func each(n int, f func(int) error) error {
	slots := make(chan struct{}, atOnce)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
