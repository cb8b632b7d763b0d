package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/kit"
)

// podClass is the provisioner whose volumes are made by pods, and its StorageClass.
const podClass = "bench-pods"

// podVolumes measures volumes that pods stage: from the creation of a claim and a pod until the pod
// runs with it, and from the creation of many claims until all have a volume.
func (b *bench) podVolumes(ctx context.Context) error {
	if err := b.makeNamespace(ctx); err != nil {
		return err
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: podClass}, Provisioner: podClass}
	remove, err := b.podProvisioner(ctx, b.clients.Host, class)
	defer remove()
	if err != nil {
		return err
	}
	took := b.series("podvolumes.new_volume", results.Millis, results.Median)
	for i := range warmups + b.options.times(30) {
		d, err := b.startPod(ctx, fmt.Sprintf("pod-%d", i), podClass)
		if err != nil {
			return err
		}
		if i >= warmups {
			took.add(millis(d))
		}
	}
	all := b.series("podvolumes.bound50.all", results.Millis, results.Worst)
	for round := range 1 + b.options.times(3) {
		d, err := b.bindCrowd(ctx)
		if err != nil {
			return err
		}
		if round > 0 {
			all.add(millis(d))
		}
	}
	return nil
}

// podVolumesMany measures the memory of pod-provisioner with many volumes, for none of which a pod runs.
func (b *bench) podVolumesMany(ctx context.Context) error {
	if err := b.makeNamespace(ctx); err != nil {
		return err
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: podClass}, Provisioner: podClass}
	remove, err := b.podProvisioner(ctx, b.clients.Host, class)
	defer remove()
	if err != nil {
		return err
	}
	if _, err := b.bindClaims(ctx, b.options.volumes); err != nil {
		return err
	}
	samples, err := b.lookAtMemory(ctx)
	if err != nil {
		return err
	}
	for process, name := range map[string]string{"pod-provisioner": "podvolumes.rss.controller", "pod-provisioner-host": "podvolumes.rss.node"} {
		b.series(name, results.Megabytes, results.Worst).add(samples[process]...)
	}
	return b.dropClaims(ctx)
}

// podVolumesOfDPUs measures volumes that pods on DPUs stage: from the creation of a claim and a pod until the pod runs
// with what its DPU shows by virtio-fs. The starts are spread over the kubelet's period, as those of pods.
func (b *bench) podVolumesOfDPUs(ctx context.Context) error {
	if err := b.wantStock(); err != nil {
		return err
	}
	if err := b.makeNamespace(ctx); err != nil {
		return err
	}
	about := metav1.ObjectMeta{Namespace: kit.Namespace, Name: podClass}
	onDPU := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: podClass}, Provisioner: podClass}
	remove, err := b.podProvisioner(ctx, b.clients.DPU, onDPU)
	defer remove()
	if err != nil {
		return err
	}
	drop, err := create(ctx, b.clients.Host,
		&storagev1alpha1.DPUStorageVendor{ObjectMeta: about, Spec: storagev1alpha1.DPUStorageVendorSpec{StorageClassName: podClass, PluginName: "pav"}},
		&storagev1alpha1.DPUStoragePolicy{ObjectMeta: about, Spec: storagev1alpha1.DPUStoragePolicySpec{DPUStorageVendors: []string{podClass}}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: podClass}, Provisioner: podvolume.DefaultDriver, Parameters: map[string]string{"policy": podClass, "emulation": "virtiofs"}},
	)
	defer drop()
	if err != nil {
		return err
	}
	return b.spreadStarts(ctx, b.series("podvolumes.dpu.new_volume", results.Millis, results.Median), podClass)
}

// create makes objects, and returns what removes those that were made.
func create(ctx context.Context, c client.Client, objects ...client.Object) (remove func(), err error) {
	var made []client.Object
	remove = func() {
		for _, o := range made {
			_ = c.Delete(context.WithoutCancel(ctx), o)
		}
	}
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return remove, fmt.Errorf("make %T %s: %w", o, o.GetName(), err)
		}
		made = append(made, o)
	}
	return remove, nil
}

// podProvisioner makes a provisioner in one of the clusters whose staging pod makes a directory, and its class there.
func (b *bench) podProvisioner(ctx context.Context, c client.Client, class *storagev1.StorageClass) (remove func(), err error) {
	p := &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: podClass}}
	template, err := json.Marshal(map[string]any{"spec": map[string]any{"terminationGracePeriodSeconds": 1, "containers": []any{
		map[string]any{"name": "stage", "image": kit.Image, "command": []string{"sh", "-ec", "mkdir /pav/volume; echo hello >/pav/volume/greeting"}},
	}}})
	if err != nil {
		return func() {}, fmt.Errorf("write a pod template: %w", err)
	}
	p.Spec.ProvisioningModes = []pavv1alpha1.ProvisioningMode{pavv1alpha1.Dynamic}
	p.Spec.VolumeCreation = &pavv1alpha1.VolumeCreation{Capacity: &apiextensionsv1.JSON{Raw: []byte(`"{{ requestedMinCapacity }}"`)}}
	p.Spec.VolumeStaging.PodTemplate = &apiextensionsv1.JSON{Raw: template}
	if remove, err = create(ctx, c, p, class); err != nil {
		return remove, err
	}
	return remove, kit.Until(ctx, "provisioner "+podClass+" is ready", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(p), p)
		return meta.IsStatusConditionTrue(p.Status.Conditions, pavv1alpha1.ConditionReady), err
	})
}

// bindCrowd measures until a crowd of claims that are made at once have their volumes, and removes them.
func (b *bench) bindCrowd(ctx context.Context) (time.Duration, error) {
	took, err := b.bindClaims(ctx, crowd)
	if err != nil {
		return 0, err
	}
	return took, b.dropClaims(ctx)
}

// bindClaims measures until so many claims that are made at once have their volumes.
func (b *bench) bindClaims(ctx context.Context, n int) (time.Duration, error) {
	begin := time.Now()
	if err := each(n, func(i int) error { return b.clients.Host.Create(ctx, claimOf(fmt.Sprintf("crowd-%d", i), podClass)) }); err != nil {
		return 0, fmt.Errorf("make %d claims: %w", n, err)
	}
	err := kit.Until(ctx, fmt.Sprintf("%d claims are bound", n), func(ctx context.Context) (bool, error) {
		var list corev1.PersistentVolumeClaimList
		err := b.clients.Host.List(ctx, &list, client.InNamespace(namespace))
		bound := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == corev1.ClaimBound {
				bound++
			}
		}
		return bound == n, err
	})
	return time.Since(begin), err
}

// dropClaims removes all claims, and waits until their volumes are gone.
func (b *bench) dropClaims(ctx context.Context) error {
	var list corev1.PersistentVolumeClaimList
	if err := b.clients.Host.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the claims: %w", err)
	}
	// One by one: a request for all of a thousand takes longer than an API server lets it.
	err := each(len(list.Items), func(i int) error { return client.IgnoreNotFound(b.clients.Host.Delete(ctx, &list.Items[i])) })
	if err != nil {
		return fmt.Errorf("remove the claims: %w", err)
	}
	return b.volumesGone(ctx, "the volumes of the claims are gone")
}
