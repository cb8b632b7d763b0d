// Package storageclass is the parameters of a DPF StorageClass: which keys are
// Moor's, what their values may be, and what holds where one is not given. Parse
// is the only place where they are read; Parameters and Context are the way back
// to text, for the calls of CSI between which they travel.
//
// It is pure: no object is read or written here.
package storageclass

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Class is what a StorageClass asks for.
type Class struct {
	// Policy names the DPUStoragePolicy.
	Policy string
	// Function is through what a host sees the volume.
	Function storagev1alpha1.FunctionTypeConfig
	// Emulation is storagev1alpha1.EmulationNVMe or EmulationVirtioFS.
	Emulation string
	// Vendor are the parameters for the vendor's plugin.
	Vendor map[string]string
	// DeadMount is what happens to pods with dead mounts; "" if the class does not say.
	DeadMount storagev1alpha1.DeadMountMode

	replication replication
}

// ours are the keys that do not go to the vendor.
var ours = []string{
	storagev1alpha1.ParameterPolicy, storagev1alpha1.ParameterFunctionType, storagev1alpha1.ParameterHotplug, storagev1alpha1.ParameterEmulation,
	storagev1alpha1.ParameterMaxShares, storagev1alpha1.ParameterReplicas, storagev1alpha1.ParameterWarmth,
	storagev1alpha1.ParameterReleaseAfter, storagev1alpha1.ParameterFailover, storagev1alpha1.ParameterPathTimeout, storagev1alpha1.ParameterDeadMount,
}

// Parse reads the parameters of a StorageClass; an empty value counts as none.
// Every error wraps ErrInvalid.
func Parse(parameters map[string]string) (Class, error) {
	if err := checkSpelling(parameters); err != nil {
		return Class{}, err
	}
	out := Class{Policy: parameters[storagev1alpha1.ParameterPolicy], Vendor: vendorsOwn(parameters)}
	if strings.TrimSpace(out.Policy) == "" {
		return Class{}, invalid("the StorageClass has no parameter %q: name the DPUStoragePolicy there", storagev1alpha1.ParameterPolicy)
	}
	var err error
	if out.Emulation, err = parseEmulation(parameters[storagev1alpha1.ParameterEmulation]); err != nil {
		return Class{}, err
	}
	if out.Function, err = parseFunction(parameters, out.Emulation); err != nil {
		return Class{}, err
	}
	if out.replication, err = parseReplication(parameters); err != nil {
		return Class{}, err
	}
	deadMount := storagev1alpha1.DeadMountMode(parameters[storagev1alpha1.ParameterDeadMount])
	if out.DeadMount, err = oneOf(storagev1alpha1.ParameterDeadMount, deadMount, storagev1alpha1.DeadMountRestart, storagev1alpha1.DeadMountTell); err != nil {
		return Class{}, err
	}
	return out, nil
}

func vendorsOwn(parameters map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, parameters)
	for _, key := range ours {
		delete(out, key)
	}
	return out
}

func parseEmulation(text string) (string, error) {
	switch e := strings.ToLower(text); e {
	case "":
		return storagev1alpha1.EmulationNVMe, nil
	case storagev1alpha1.EmulationNVMe, storagev1alpha1.EmulationVirtioFS:
		return e, nil
	}
	return "", invalid("parameter %s is %q, allowed are %s and %s",
		storagev1alpha1.ParameterEmulation, text, storagev1alpha1.EmulationNVMe, storagev1alpha1.EmulationVirtioFS)
}

// parseFunction reads the function. For virtio-fs there is only one kind, which
// is the default then.
func parseFunction(parameters map[string]string, emulation string) (storagev1alpha1.FunctionTypeConfig, error) {
	const typeKey, hotplugKey = storagev1alpha1.ParameterFunctionType, storagev1alpha1.ParameterHotplug
	shared := emulation == storagev1alpha1.EmulationVirtioFS
	out := storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF, HotplugFunction: shared}
	if shared {
		out.FunctionType = storagev1alpha1.FunctionTypePF
	}
	if text := parameters[typeKey]; text != "" {
		out.FunctionType = storagev1alpha1.FunctionType(strings.ToLower(text))
		if out.FunctionType != storagev1alpha1.FunctionTypeVF && out.FunctionType != storagev1alpha1.FunctionTypePF {
			return out, invalid("parameter %s is %q, allowed are vf and pf", typeKey, text)
		}
	}
	if text := parameters[hotplugKey]; text != "" {
		hotplug, err := strconv.ParseBool(text)
		if err != nil {
			return out, invalid("parameter %s is %q, allowed are true and false", hotplugKey, text)
		}
		out.HotplugFunction = hotplug
	}
	if out.HotplugFunction && out.FunctionType == storagev1alpha1.FunctionTypeVF {
		return out, invalid("%s=true needs %s=pf: a virtual function cannot be hot-plugged", hotplugKey, typeKey)
	}
	if shared && !out.HotplugFunction {
		return out, invalid("%s=%s needs %s=pf and %s=true: virtio-fs is shown on hot-plugged physical functions alone; leave both out, or give them so",
			storagev1alpha1.ParameterEmulation, storagev1alpha1.EmulationVirtioFS, typeKey, hotplugKey)
	}
	return out, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, provisioner.ErrInvalid)...)
}
