package attacher

import (
	"fmt"
	"slices"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// requestOf returns the publish call that a PersistentVolume asks for.
func requestOf(pv *corev1.PersistentVolume, nodeID, defaultFSType string, f Features) (PublishRequest, error) {
	source := pv.Spec.CSI
	mode, err := accessMode(pv.Spec.AccessModes, f.SingleNodeMultiWriter)
	if err != nil {
		return PublishRequest{}, fmt.Errorf("PersistentVolume %s: %w", pv.Name, err)
	}
	capability := &csispec.VolumeCapability{
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}},
	}
	if pv.Spec.VolumeMode == nil || *pv.Spec.VolumeMode == corev1.PersistentVolumeFilesystem {
		fsType := source.FSType
		if fsType == "" {
			fsType = defaultFSType
		}
		capability.AccessType = &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{
			FsType: fsType, MountFlags: pv.Spec.MountOptions,
		}}
	}
	return PublishRequest{
		VolumeHandle:  source.VolumeHandle,
		NodeID:        nodeID,
		ReadOnly:      source.ReadOnly && f.ReadOnly,
		Capability:    capability,
		VolumeContext: source.VolumeAttributes,
	}, nil
}

// accessMode chooses the one CSI access mode for those of a PersistentVolume,
// by external-attacher's rules.
func accessMode(modes []corev1.PersistentVolumeAccessMode, newer bool) (csispec.VolumeCapability_AccessMode_Mode, error) {
	has := func(m corev1.PersistentVolumeAccessMode) bool { return slices.Contains(modes, m) }
	switch {
	case has(corev1.ReadWriteMany):
		return csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, nil
	case has(corev1.ReadOnlyMany) && (has(corev1.ReadWriteOnce) || has(corev1.ReadWriteOncePod)):
		return 0, fmt.Errorf("no CSI access mode stands for %v together: %w", modes, provisioner.ErrInvalid)
	case has(corev1.ReadOnlyMany):
		return csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, nil
	case has(corev1.ReadWriteOncePod) && newer:
		return csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, nil
	case has(corev1.ReadWriteOnce) && newer:
		return csispec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, nil
	case has(corev1.ReadWriteOnce), has(corev1.ReadWriteOncePod):
		return csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil
	}
	return 0, fmt.Errorf("its access modes %v name no way to use it: %w", modes, provisioner.ErrInvalid)
}
