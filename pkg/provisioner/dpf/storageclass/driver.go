package storageclass

import (
	"maps"
	"strings"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Driver is one CSI driver's view of parameters. DPF has a driver for each kind of
// emulation, whose StorageClasses do not name it; Moor's own may, under the driver of NVMe.
type Driver struct {
	// Emulation is what holds where neither parameters nor volume context say it:
	// storagev1alpha1.EmulationNVMe, which "" stands for, or EmulationVirtioFS.
	Emulation string
}

// CheckDriver refuses an emulation that no driver has; the error wraps ErrInvalid.
func CheckDriver(emulation string) error {
	switch emulation {
	case storagev1alpha1.EmulationNVMe, storagev1alpha1.EmulationVirtioFS:
		return nil
	}
	return invalid("the emulation of a driver is %q: %s or %s is wanted", emulation, storagev1alpha1.EmulationNVMe, storagev1alpha1.EmulationVirtioFS)
}

// with is keys with the driver's emulation, if they name none.
func (d Driver) with(keys map[string]string) map[string]string {
	if d.Emulation != storagev1alpha1.EmulationVirtioFS || keys[storagev1alpha1.ParameterEmulation] != "" {
		return keys
	}
	out := maps.Clone(keys)
	if out == nil {
		out = map[string]string{}
	}
	out[storagev1alpha1.ParameterEmulation] = d.Emulation
	return out
}

// Normalize is the function of that name. What a driver of virtio-fs does not have is
// refused: a volume context without the key would be taken for virtio-fs later.
func (d Driver) Normalize(parameters map[string]string) (map[string]string, error) {
	if asked := parameters[storagev1alpha1.ParameterEmulation]; d.Emulation == storagev1alpha1.EmulationVirtioFS && strings.EqualFold(asked, storagev1alpha1.EmulationNVMe) {
		return nil, invalid("the StorageClass has %s=%s, and this driver is one of %s: name the provisioner of the other driver", storagev1alpha1.ParameterEmulation, asked, d.Emulation)
	}
	return Normalize(d.with(parameters))
}

// SharesFilesystem is the function of that name.
func (d Driver) SharesFilesystem(keys map[string]string) bool { return SharesFilesystem(d.with(keys)) }
