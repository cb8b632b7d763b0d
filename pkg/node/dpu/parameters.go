package dpu

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// controllerParameters are the optional parameters of SNAP's
// nvme_controller_create. Storage parameters with other names are for the
// vendor, and SNAP would refuse the call for them.
var controllerParameters = []string{
	"compare", "compare_write", "deallocate_dsm", "dynamic_msix", "fw_slots", "mdts",
	"num_queues", "quirks", "snapshot", "vf_num_msix", "write_zeroes",
}

// deviceParameters are those of virtio_fs_device_create.
var deviceParameters = []string{storagev1alpha1.ParameterRequestQueues}

// parameters are the volume's and those of its policy; the volume's own win.
func parameters(volume *storagev1alpha1.Volume) map[string]string {
	out := map[string]string{}
	maps.Copy(out, volume.Spec.StoragePolicyParameters)
	maps.Copy(out, volume.Spec.StorageParameters)
	return out
}

// controllerOptions picks what SNAP knows from the parameters.
func controllerOptions(volume *storagev1alpha1.Volume) map[string]string {
	out, known := parameters(volume), controllerParameters
	if volumeMode(volume) == provisioner.Filesystem {
		known = deviceParameters
	}
	maps.DeleteFunc(out, func(key, _ string) bool { return !slices.Contains(known, key) })
	return out
}

// openSpec is what the vendor's plugin is asked to make a device of.
func openSpec(p *pass) provisioner.OpenSpec {
	publish := map[string]string{}
	for key, value := range p.attachment.Spec.Parameters {
		publish[key] = value
	}
	// Added to what the vendor's ControllerPublish returned.
	publish[storagev1alpha1.PublishContextVolume], publish[storagev1alpha1.PublishContextAttachment] = p.volume.Name, p.attachment.Name
	made := p.volume.Spec.Volume
	modes := made.AccessModes
	if len(modes) == 0 {
		modes = p.volume.Spec.Request.AccessModes
	}
	return provisioner.OpenSpec{
		VolumeID: p.volumeID, Mode: volumeMode(p.volume), AccessModes: modesOf(modes),
		PublishContext: publish, VolumeContext: made.VolumeAttributes, Parameters: parameters(p.volume),
	}
}

func volumeMode(volume *storagev1alpha1.Volume) provisioner.VolumeMode {
	if m := volume.Spec.Request.VolumeMode; m != nil && *m != "" {
		return provisioner.VolumeMode(*m)
	}
	return provisioner.Filesystem // Kubernetes' default
}

func modesOf(modes []corev1.PersistentVolumeAccessMode) []provisioner.AccessMode {
	out := make([]provisioner.AccessMode, 0, len(modes))
	for _, m := range modes {
		out = append(out, provisioner.AccessMode(m))
	}
	return out
}

// exposeSpec is what SNAP is asked to show. The plugin was asked for a device of
// the volume's mode, so that says which kind it is: a file system is an fsdev.
func exposeSpec(p *pass) provisioner.ExposeSpec {
	spec := provisioner.ExposeSpec{
		Device:       p.dpu.DeviceName,
		Mode:         volumeMode(p.volume),
		VUID:         p.dpu.FuncVUID,
		FunctionType: provisioner.FunctionType(p.attachment.Spec.FunctionType),
		Hotplug:      p.attachment.Spec.HotplugFunction,
		PCIAddress:   p.dpu.PCIDeviceAddress,
		Hidden:       p.keepsReady(),
		Parameters:   controllerOptions(p.volume),
	}
	if p.dpu.BdevAttrs != nil {
		spec.NamespaceID, spec.UUID = p.dpu.BdevAttrs.NVMeNsID, p.dpu.BdevAttrs.NVMeUUID
	}
	return spec
}
