package failover

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// target is one primary attachment of a host, or a replica that is promoted early: its
// DPU may write as a primary's may.
type target struct {
	attachment *storagev1alpha1.DPUVolumeAttachment
	volume     *storagev1alpha1.DPUVolume
	// single: the volume has a single writer.
	single bool
	// fails: the volume fails over.
	fails bool
	// claim and mirror are nil if there are none. They are the cache's until
	// readLive.
	claim  *moorv1alpha1.WriterClaim
	mirror *storagev1alpha1.VolumeAttachment
	// waits says what is waited for.
	waits string
}

// holder is what the right to write is granted to, if the DPU has it for the target.
func (t *target) holder(dpu string) writer.Holder {
	return writer.Holder{DPU: dpu, Attachment: t.attachment.Name}
}

// held reports whether the DPU has the right to write, or had it and there is no
// receipt yet.
func (t *target) held(dpu string) bool {
	return t.single && writer.Holds(t.claim, t.holder(dpu))
}

func (t *target) inFencing(dpu string) bool {
	return t.single && writer.InFencing(t.claim, t.holder(dpu))
}

// vouched reports whether an operator wants the epoch to end.
func (t *target) vouched(dpu string) bool {
	return t.single && writer.Vouched(t.claim, t.holder(dpu))
}

// affected are the targets that fail over.
func (p *pass) affected() []*target {
	var out []*target
	for _, t := range p.targets {
		if t.fails {
			out = append(out, t)
		}
	}
	return out
}

func (p *pass) waiting() bool {
	for _, t := range p.targets {
		if t.waits != "" {
			return true
		}
	}
	return false
}

// promoted reports whether the DPU has the attachment for a primary.
func (t *target) promoted() bool {
	return t.mirror != nil && !t.mirror.IsReplica()
}

// listTargets lists the primaries of the host, and what is one on its DPU.
func (f *Failover) listTargets(ctx context.Context, p *pass) error {
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := f.Host.Client.List(ctx, &list, client.InNamespace(f.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByNode: p.node.Name}); err != nil {
		return fmt.Errorf("list what is attached to host %s: %w", p.node.Name, err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		t := &target{attachment: a, volume: &storagev1alpha1.DPUVolume{}}
		found, err := kube.Find(ctx, f.Host.Client, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.DPUVolumeName}, t.volume)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		r := t.volume.Spec.Replication
		t.single, t.fails = provisioner.SingleNode(t.volume.Spec.AccessModes), r != nil && r.Failover == storagev1alpha1.FailoverFence
		if err := f.read(ctx, f.DPU.Client, t); err != nil {
			return err
		}
		if a.Spec.Role == storagev1alpha1.RoleReplica && !t.promoted() && !t.held(p.dpu()) {
			continue
		}
		p.targets = append(p.targets, t)
	}
	return nil
}

// readLive reads the claims and VolumeAttachments from the API server itself.
func (f *Failover) readLive(ctx context.Context, p *pass) error {
	return forEach(p.targets, func(t *target) error { return f.read(ctx, f.DPU.Live, t) })
}

func (f *Failover) read(ctx context.Context, from client.Reader, t *target) error {
	if !t.single {
		return nil
	}
	t.claim, t.mirror = &moorv1alpha1.WriterClaim{}, &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, from, client.ObjectKey{Namespace: f.TargetNamespace, Name: t.volume.Name}, t.claim)
	if err != nil {
		return err
	}
	if !found {
		t.claim = nil
	}
	found, err = kube.Find(ctx, from, client.ObjectKey{Namespace: f.TargetNamespace, Name: t.attachment.Name}, t.mirror)
	if err != nil {
		return err
	}
	if !found {
		t.mirror = nil
	}
	return nil
}
