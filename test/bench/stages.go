package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/bench/workload"
	"github.com/moor-storage/moor/test/kit"
)

// stages are the parts of a failover that Moor alone is responsible for, of a
// workload with one volume.
type stages struct{ timeline *kit.Timeline }

// The hops of a failover, in the order in which they are watched for.
const (
	hopDetected = iota
	hopDecided
	hopReceipt
	hopPromoted
	hopAttached
	hopCount
)

// watchStages begins to watch for what a failover away from host shows.
func (b *bench) watchStages(ctx context.Context, w *workload.Workload, host string) (*stages, error) {
	var volume string
	var epoch int64
	for _, v := range w.Volumes() {
		volume = v.Name
		states, err := v.Record.States(ctx)
		if err != nil {
			return nil, err
		}
		epoch = states[len(states)-1].Epoch
	}
	hops := make([]kit.Hop, hopCount)
	hops[hopDetected] = b.storageNode(host, func(n *moorv1alpha1.DPUStorageNode) bool {
		return n.Status.DPU != nil && n.Status.DPU.Host != nil && !n.Status.DPU.Host.Alive
	})
	hops[hopDecided] = b.storageNode(host, func(n *moorv1alpha1.DPUStorageNode) bool {
		return meta.IsStatusConditionTrue(n.Status.Conditions, moorv1alpha1.ConditionFailover)
	})
	hops[hopReceipt] = kit.Hop{Where: b.clients.DPU, Kind: &moorv1alpha1.WriterClaimList{}, Seen: func(o client.Object) bool {
		c, ok := o.(*moorv1alpha1.WriterClaim)
		return ok && c.Name == volume && c.Status != nil && (c.Status.Epoch > epoch || c.Status.Phase == moorv1alpha1.ClaimFree)
	}}
	hops[hopPromoted] = b.attachment(volume, host, func(*storagev1alpha1.VolumeAttachment) bool { return true })
	hops[hopAttached] = b.attachment(volume, host, func(a *storagev1alpha1.VolumeAttachment) bool {
		return a.Spec.Epoch > epoch && a.Status.DPU.Attached
	})
	for i, name := range []string{"detected", "decided", "receipt", "promoted", "attached"} {
		hops[i].Name = fmt.Sprintf("%s, of volume %s and %s", name, volume, host)
	}
	timeline, err := kit.Watch(ctx, hops...)
	return &stages{timeline}, err
}

// storageNode is seen when the DPUStorageNode of the host is as wanted.
func (b *bench) storageNode(host string, seen func(*moorv1alpha1.DPUStorageNode) bool) kit.Hop {
	return kit.Hop{Where: b.clients.Host, Kind: &moorv1alpha1.DPUStorageNodeList{}, Seen: func(o client.Object) bool {
		n, ok := o.(*moorv1alpha1.DPUStorageNode)
		return ok && n.Name == host && seen(n)
	}}
}

// attachment is seen when a primary of the volume on another DPU than the host's is
// as wanted.
func (b *bench) attachment(volume, host string, seen func(*storagev1alpha1.VolumeAttachment) bool) kit.Hop {
	return kit.Hop{Where: b.clients.DPU, Kind: &storagev1alpha1.VolumeAttachmentList{}, Seen: func(o client.Object) bool {
		a, ok := o.(*storagev1alpha1.VolumeAttachment)
		return ok && a.Spec.Source.VolumeRef != nil && a.Spec.Source.VolumeRef.Name == volume &&
			a.Spec.NodeName != dpuOf(host) && a.Spec.Role != storagev1alpha1.RoleReplica && seen(a)
	}}
}

// noteWithin is how long the watches may lag behind the pod.
const noteWithin = 10 * time.Second

// note adds the times of a failover that is over.
func (s *stages) note(ctx context.Context, b *bench) error {
	if err := s.timeline.Wait(ctx, noteWithin); err != nil {
		return err
	}
	at := s.timeline.Marks()
	part := func(from, to int) float64 { return max(0, millis(at[to].At-at[from].At)) }
	for name, took := range map[string]float64{
		"failover.detect":          millis(at[hopDetected].At),
		"failover.fence":           part(hopDecided, hopReceipt),
		"failover.promote":         part(hopReceipt, hopAttached),
		"failover.promote.request": part(hopPromoted, hopAttached),
	} {
		b.series(b.inMode(name), results.Millis, results.Median).add(took)
	}
	b.say("    seen dead %.0f ms, decided %.0f, receipt %.0f, promotion asked for %.0f, namespace attached %.0f",
		millis(at[hopDetected].At), millis(at[hopDecided].At), millis(at[hopReceipt].At), millis(at[hopPromoted].At), millis(at[hopAttached].At))
	return nil
}
