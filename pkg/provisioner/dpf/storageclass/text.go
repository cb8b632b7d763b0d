package storageclass

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Normalize writes the parameters of a StorageClass their usual way, which is
// how a volume tells of those that it was made with: the policy, functionType in
// lower case and hotplugFunction always, emulation if it is not nvme, those of
// replication that are given, and the vendor's as they are. Every error wraps
// ErrInvalid.
func Normalize(parameters map[string]string) (map[string]string, error) {
	c, err := Parse(parameters)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(c.Vendor)
	out[storagev1alpha1.ParameterPolicy] = c.Policy
	maps.Copy(out, c.functions())
	maps.Copy(out, c.replication.parameters())
	if c.DeadMount != "" {
		out[storagev1alpha1.ParameterDeadMount] = string(c.DeadMount)
	}
	return out, nil
}

// FunctionsIn is what parameters say of how a host sees the volume, in keys that
// parameters and volume context share. Normalize leaves none of them out.
func FunctionsIn(parameters map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range []string{storagev1alpha1.VolumeContextFunctionType, storagev1alpha1.VolumeContextHotplug, storagev1alpha1.VolumeContextEmulation} {
		if value, ok := parameters[key]; ok {
			out[key] = value
		}
	}
	return out
}

// functions is FunctionsIn of the normalized parameters.
func (c Class) functions() map[string]string {
	out := map[string]string{
		storagev1alpha1.VolumeContextFunctionType: string(c.Function.FunctionType),
		storagev1alpha1.VolumeContextHotplug:      strconv.FormatBool(c.Function.HotplugFunction),
	}
	if c.Emulation != storagev1alpha1.EmulationNVMe {
		out[storagev1alpha1.VolumeContextEmulation] = c.Emulation
	}
	return out
}

// FunctionOf reads the function wanted from a volume context.
func FunctionOf(volumeContext map[string]string) (storagev1alpha1.FunctionTypeConfig, error) {
	out := storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF}
	if t := volumeContext[storagev1alpha1.VolumeContextFunctionType]; t != "" {
		out.FunctionType = storagev1alpha1.FunctionType(t)
	}
	if h := volumeContext[storagev1alpha1.VolumeContextHotplug]; h != "" {
		hotplug, err := strconv.ParseBool(h)
		if err != nil {
			return out, fmt.Errorf("%w: %s is %q: true or false is wanted", provisioner.ErrInvalid, storagev1alpha1.VolumeContextHotplug, h)
		}
		out.HotplugFunction = hotplug
	}
	return out, nil
}

// SharesFilesystem reports whether a volume with these parameters, or this volume
// context, is shown by virtio-fs.
func SharesFilesystem(keys map[string]string) bool {
	return strings.EqualFold(keys[storagev1alpha1.ParameterEmulation], storagev1alpha1.EmulationVirtioFS)
}

// ParametersOf are the parameters that a DPUVolume was made with, as far as its
// spec tells.
func ParametersOf(spec *storagev1alpha1.DPUVolumeSpec) map[string]string {
	out := map[string]string{}
	maps.Copy(out, spec.Parameters)
	out[storagev1alpha1.ParameterPolicy] = spec.DPUStoragePolicyName
	if spec.DeadMount != "" {
		out[storagev1alpha1.ParameterDeadMount] = string(spec.DeadMount)
	}
	if spec.Replication == nil {
		out[storagev1alpha1.ParameterMaxShares], out[storagev1alpha1.ParameterReplicas] = "1", "0"
		return out
	}
	r := spec.Replication
	given := replication{
		shares: &r.MaxShares, replicas: &r.MaxMountReplicaCount,
		warmth: r.Warmth, failover: r.Failover, releaseAfterSeconds: r.ReleaseAfterSeconds, pathTimeoutSeconds: r.PathTimeoutSeconds,
	}
	maps.Copy(out, given.parameters())
	return out
}
