// Package dpf is the platform that stands on DPF's objects: a volume is a
// DPUVolume, an attachment a DPUVolumeAttachment, and a device on the host is
// the emulated PCI function that the attachment's status names.
//
// Each kind has a package below this one, which makes its objects and waits for
// the controllers behind; none of them decides anything that those decide.
package dpf

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/health"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/snapshot"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/volume"
)

// Options say where the objects live.
type Options = request.Options

// Platform is the DPF platform as the CSI controller uses it. What its vendors
// can do differs: an interface is there if any vendor may have it, and a call
// for a volume of one that has not is refused with the reason.
func Platform(ctx context.Context, o Options) (provisioner.Platform, error) {
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	volumes, err := volume.New(ctx, o)
	if err != nil {
		return provisioner.Platform{}, err
	}
	attachments, err := attachment.New(ctx, o)
	if err != nil {
		return provisioner.Platform{}, err
	}
	snapshots, err := snapshot.New(ctx, o)
	if meta.IsNoMatchError(err) {
		log.FromContext(ctx).Info("no snapshots: the host cluster has no kind DPUVolumeSnapshot (storage.moor.dev); apply crds/host and start again")
		snapshots, err = nil, nil
	}
	if err != nil {
		return provisioner.Platform{}, err
	}
	out := provisioner.Platform{
		Volumes:     volumes,
		Attachments: attachments,
		Inventory:   volume.NewInventory(o),
		Copies:      volumes.Copies(snapshots),
		Expansion:   volumes.Expansion(),
		Change:      volumes.Change(),
		Room:        volume.NewRoom(o),
		Health:      health.New(o, clock.RealClock{}),
	}
	if snapshots != nil {
		out.Snapshots = snapshots
		out.Groups = snapshot.NewGroups(snapshots)
	}
	return out, nil
}
