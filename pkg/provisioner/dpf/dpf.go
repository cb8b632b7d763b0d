// Package dpf is the platform that stands on DPF's objects: a volume is a
// DPUVolume, an attachment a DPUVolumeAttachment, and a device on the host is
// the emulated PCI function that the attachment's status names.
package dpf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Options say where the objects live.
type Options struct {
	// Client reads from Cache and writes to the host cluster.
	Client client.Client
	// Cache watches DPUVolumes and DPUVolumeAttachments of Namespace; for
	// NodeAttachments, the node's own DPUVolumeAttachments are enough.
	Cache cache.Cache
	// Live reads the API server itself; NodeAttachments alone needs it.
	Live client.Reader
	// Namespace of all objects.
	Namespace string
	// Timeout of one wait for the controllers behind; 0 means 2 minutes,
	// DPF's value, and 30 seconds for NodeAttachments.
	Timeout time.Duration
}

// Platform is the DPF platform as the CSI controller uses it. What its vendors
// can do differs: a face is there if any vendor may have it, and a call for a
// volume of one that has not is refused in words.
func Platform(ctx context.Context, o Options) (provisioner.Platform, error) {
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if err := kube.AddIndexes(ctx, o.Cache, attachmentIndex()); err != nil {
		return provisioner.Platform{}, err
	}
	volumes, err := kube.NewAwaiter(ctx, o.Cache, func() *storagev1alpha1.DPUVolume { return &storagev1alpha1.DPUVolume{} })
	if err != nil {
		return provisioner.Platform{}, err
	}
	attachments, err := kube.NewAwaiter(ctx, o.Cache, func() *storagev1alpha1.DPUVolumeAttachment { return &storagev1alpha1.DPUVolumeAttachment{} })
	if err != nil {
		return provisioner.Platform{}, err
	}
	made := &Volumes{options: o, awaiter: volumes}
	snapshots, err := newSnapshots(ctx, o)
	if meta.IsNoMatchError(err) {
		log.FromContext(ctx).Info("no snapshots: the host cluster has no kind DPUVolumeSnapshot (storage.moor.dev); apply crds/host and start again")
		snapshots, err = nil, nil
	}
	if err != nil {
		return provisioner.Platform{}, err
	}
	out := provisioner.Platform{
		Volumes:     made,
		Attachments: &Attachments{options: o, awaiter: attachments},
		Inventory:   &Inventory{options: o, volumes: made},
		Copies:      &Copies{volumes: made, snapshots: snapshots},
		Expansion:   expansion{made},
		Change:      change{made},
		Room:        &Room{options: o},
		Health:      &Health{options: o, clock: clock.RealClock{}},
	}
	if snapshots != nil {
		out.Snapshots = snapshots
		out.Groups = &Groups{snapshots}
	}
	return out, nil
}

// waited turns the end of a wait into words: what was waited for and what the
// object's conditions say about it.
func waited(err error, what string, conditions []metav1.Condition) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", what, err)
	}
	words := "its controller has not looked at it yet; is snap-host-controller running?"
	if ready := meta.FindStatusCondition(conditions, storagev1alpha1.ConditionReady); ready != nil && ready.Message != "" {
		words = ready.Message
	}
	return fmt.Errorf("%s: %w: %s", what, err, words)
}
