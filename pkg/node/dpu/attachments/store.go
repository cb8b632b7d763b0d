package attachments

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// NodeField selects the VolumeAttachments of one DPU: the CRD has it among its selectableFields.
const NodeField = "spec.nodeName"

// Store reads the attachments of one DPU. Safe for concurrent use.
type Store struct {
	DPU kube.Cluster
	// Node is this DPU's node name, Namespace where the attachments are.
	Node, Namespace string
}

// Cached lists this DPU's attachments from the cache.
func (s *Store) Cached(ctx context.Context) ([]storagev1alpha1.VolumeAttachment, error) {
	return s.list(ctx, s.DPU.Client)
}

// Live lists this DPU's attachments from the API server itself.
func (s *Store) Live(ctx context.Context) ([]storagev1alpha1.VolumeAttachment, error) {
	return s.list(ctx, s.DPU.Live, client.MatchingFields{NodeField: s.Node})
}

func (s *Store) list(ctx context.Context, from client.Reader, more ...client.ListOption) ([]storagev1alpha1.VolumeAttachment, error) {
	var list storagev1alpha1.VolumeAttachmentList
	if err := from.List(ctx, &list, append(more, client.InNamespace(s.Namespace))...); err != nil {
		return nil, fmt.Errorf("list the attachments of DPU %s: %w", s.Node, err)
	}
	var out []storagev1alpha1.VolumeAttachment
	for _, a := range list.Items {
		if a.Spec.NodeName == s.Node {
			out = append(out, a)
		}
	}
	return out, nil
}

// Again reads an attachment again, from the API server itself; nil if it is gone,
// or another one has its name now.
func (s *Store) Again(ctx context.Context, a *storagev1alpha1.VolumeAttachment) (*storagev1alpha1.VolumeAttachment, error) {
	now := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, s.DPU.Live, client.ObjectKeyFromObject(a), now)
	if err != nil || !found || now.UID != a.UID {
		return nil, err
	}
	return now, nil
}

// Volume reads the attachment's Volume from the API server itself; nil if there
// is none.
func (s *Store) Volume(ctx context.Context, a *storagev1alpha1.VolumeAttachment) (*storagev1alpha1.Volume, error) {
	volume := &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, s.DPU.Live, types.NamespacedName{Namespace: s.Namespace, Name: a.VolumeName()}, volume)
	if err != nil || !found {
		return nil, err
	}
	return volume, nil
}

// WriterClaim reads a volume's WriterClaim from the API server itself; nil if
// there is none.
func (s *Store) WriterClaim(ctx context.Context, volume string) (*moorv1alpha1.WriterClaim, error) {
	claim := &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, s.DPU.Live, types.NamespacedName{Namespace: s.Namespace, Name: volume}, claim)
	if err != nil {
		return nil, fmt.Errorf("find out who may write volume %s: %w: %w", volume, provisioner.ErrUnavailable, err)
	}
	if !found {
		return nil, nil
	}
	return claim, nil
}

// Reserved returns the PCI addresses at which the host knows the volumes of
// this DPU, with the device of each: no other volume may be given them. It reads
// the cache.
func (s *Store) Reserved(ctx context.Context) map[string]string {
	all, err := s.Cached(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list reserved functions")
	}
	out := map[string]string{}
	for _, a := range all {
		if a.Status.DPU.PCIDeviceAddress != "" {
			out[a.Status.DPU.PCIDeviceAddress] = a.Status.DPU.DeviceName
		}
	}
	return out
}

// OnRecord is a device that an attachment has on record.
type OnRecord struct {
	Volume string
	// Service is the SNAP service that shows it; empty: none was chosen yet.
	Service string
	// Going: the attachment is being deleted, so that the storage may have shut this DPU out.
	Going bool
}

// Devices returns the devices of this DPU's attachments that are on record. It reads the cache.
func (s *Store) Devices(ctx context.Context) (map[string]OnRecord, error) {
	all, err := s.Cached(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]OnRecord{}
	for i := range all {
		if device, volume := all[i].Status.DPU.DeviceName, all[i].VolumeName(); device != "" && volume != "" {
			out[device] = OnRecord{volume, all[i].Status.DPU.Provider, !all[i].DeletionTimestamp.IsZero()}
		}
	}
	return out, nil
}

// Functions returns the VUIDs of the functions that the devices of this DPU were
// given, by device, as far as they are on record. It reads the cache.
func (s *Store) Functions(ctx context.Context) map[string]string {
	all, err := s.Cached(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list functions on record")
	}
	out := map[string]string{}
	for _, a := range all {
		if a.Status.DPU.FuncVUID != "" {
			out[a.Status.DPU.DeviceName] = a.Status.DPU.FuncVUID
		}
	}
	return out
}
