package hostcluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// Forget takes off vendors and policies what the controller of one of several DPU clusters, which is gone for
// good, has left there: its finalizer, what it said, and its part of what is free. The controllers of the others sum
// up what is left. It refuses, and changes nothing, while anything is in that DPU cluster, or a controller may serve
// it. forgotten are the objects that were changed: doing it again changes none. It needs Host alone.
func (c Clusters) Forget(ctx context.Context) (forgotten []string, err error) {
	left, err := c.left(ctx)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("DPU cluster %s is not forgotten: %s", c.DPUCluster, strings.Join(left, "; "))
	}
	vendors, policies := &storagev1alpha1.DPUStorageVendorList{}, &storagev1alpha1.DPUStoragePolicyList{}
	for _, list := range []client.ObjectList{vendors, policies} {
		if err := c.Host.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return nil, fmt.Errorf("list vendors and policies: %w", err)
		}
	}
	note := func(name string, err error) error {
		if name != "" {
			forgotten = append(forgotten, name)
		}
		return err
	}
	for i := range policies.Items {
		err := note(forget(ctx, c, &policies.Items[i], storagev1alpha1.FinalizerDPUStoragePolicy, func(p *storagev1alpha1.DPUStoragePolicy) {
			p.Status.Conditions = c.others(p.Status.Conditions)
			p.Status.Capacity = c.Capacity(p.Status.Capacity, nil)
		}))
		if err != nil {
			return forgotten, err
		}
	}
	for i := range vendors.Items {
		err := note(forget(ctx, c, &vendors.Items[i], storagev1alpha1.FinalizerDPUStorageVendor, func(v *storagev1alpha1.DPUStorageVendor) {
			v.Status.Conditions = c.others(v.Status.Conditions)
			v.Status.DPUClusters = c.Listed(v.Status.DPUClusters, false)
		}))
		if err != nil {
			return forgotten, err
		}
	}
	return forgotten, nil
}

// forget changes one of them, and returns its name if there was anything to change. The finalizer goes last: with it
// the object may.
func forget[T client.Object](ctx context.Context, c Clusters, o T, finalizer string, change func(T)) (string, error) {
	version := o.GetResourceVersion()
	if err := PatchShared(ctx, c, o, change); err != nil {
		return "", fmt.Errorf("take what DPU cluster %s said off %T %s: %w", c.DPUCluster, o, o.GetName(), err)
	}
	if err := kube.RemoveFinalizers(ctx, c.Host.Client, o, c.Finalizer(finalizer)); err != nil {
		return "", err
	}
	if o.GetResourceVersion() == version {
		return "", nil
	}
	_, kind, _ := strings.Cut(finalizer, "/")
	return kind + " " + o.GetName(), nil
}

// others are the conditions that the controllers of other DPU clusters, and all of them, have said.
func (c Clusters) others(conditions []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(cond metav1.Condition) bool {
		_, where, _ := strings.Cut(cond.Type, ".") // the name of a DPU cluster may end as another does
		return where == c.label()
	})
}

// left says what is in the DPU cluster by what is on record, and what has to become of it first.
func (c Clusters) left(ctx context.Context) (out []string, err error) {
	found, err := kube.Find(ctx, c.Host.Client, client.ObjectKey{Namespace: c.Namespace, Name: c.Lease()}, &coordinationv1.Lease{})
	if err != nil {
		return nil, err
	}
	if found {
		out = append(out, fmt.Sprintf("its snap-host-controller has the Lease %s: end it, and delete the Lease when it is gone", c.Lease()))
	}
	hosts, volumes := &moorv1alpha1.DPUStorageNodeList{}, &storagev1alpha1.DPUVolumeList{}
	attachments, snapshots := &storagev1alpha1.DPUVolumeAttachmentList{}, &moorv1alpha1.DPUVolumeSnapshotList{}
	for _, list := range []client.ObjectList{hosts, volumes, attachments, snapshots} {
		if err := c.Host.Client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("see what is in DPU cluster %s: %w", c.DPUCluster, err)
		}
	}
	out = append(out, named(hosts.Items, "DPUStorageNode", "delete it, or name the DPU and DPU cluster that the host has now in a new one",
		func(n *moorv1alpha1.DPUStorageNode) bool { return n.Spec.DPUCluster == c.DPUCluster })...)
	out = append(out, named(attachments.Items, "DPUVolumeAttachment", gone,
		func(a *storagev1alpha1.DPUVolumeAttachment) bool { return a.Status.DPUCluster == c.DPUCluster })...)
	out = append(out, named(snapshots.Items, "DPUVolumeSnapshot", gone,
		func(s *moorv1alpha1.DPUVolumeSnapshot) bool { return s.Status.DPUCluster == c.DPUCluster })...)
	out = append(out, named(volumes.Items, "DPUVolume", gone,
		func(v *storagev1alpha1.DPUVolume) bool { return c.Volume(v) == Ours })...)
	return out, nil
}

// gone is what to do with what was in a DPU cluster and cannot be brought back.
const gone = "delete it, and take its finalizers off if its data went with the DPU cluster"

// mostNamed is how many objects of a kind are named.
const mostNamed = 5

// named says which objects are there, and what to do; nothing if there are none.
func named[T any, P interface {
	*T
	client.Object
}](items []T, kind, do string, there func(P) bool) []string {
	var names []string
	for i := range items {
		if o := P(&items[i]); there(o) {
			names = append(names, o.GetName())
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if n := len(names) - mostNamed; n > 0 {
		names, more = names[:mostNamed], fmt.Sprintf(" and %d more", n)
	}
	return []string{fmt.Sprintf("%s %s%s: %s", kind, strings.Join(names, ", "), more, do)}
}
