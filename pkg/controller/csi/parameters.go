package csi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// The StorageClass parameters of DPF that are ours; all others are the
// vendor's and pass through.
const (
	// ParamPolicy names the DPUStoragePolicy; required.
	ParamPolicy = "policy"
	// ParamFunctionType is vf (default) or pf, in any case.
	ParamFunctionType = "functionType"
	// ParamHotplug is a boolean, default false; true needs pf.
	ParamHotplug = "hotplugFunction"
	// ParamEmulation is nvme (default) or virtiofs, in any case. It is Moor's:
	// DPF has a flag for it, and a second driver.
	ParamEmulation = "emulation"

	emulationNVMe     = "nvme"
	emulationVirtioFS = "virtiofs"
)

var ourParameters = []string{
	ParamPolicy, ParamFunctionType, ParamHotplug, ParamEmulation,
	ParamMaxShares, ParamReplicas, ParamWarmth, ParamReleaseAfter, ParamFailover,
}

// maxTypos is the edit distance up to which a key counts as a misspelt one of
// ours and not as the vendor's.
const maxTypos = 2

// DPFParameters checks the parameters of a DPF StorageClass. The result holds
// policy, functionType (lower case) and hotplugFunction ("true" or "false"),
// always all three, emulation if it is not nvme, those of replication that are given, and every key that is
// not ours untouched; the keys that sidecars add are dropped. Every error wraps
// ErrInvalid.
func DPFParameters(in map[string]string) (map[string]string, error) {
	out, err := StripReserved(in)
	if err != nil {
		return nil, err
	}
	if err := checkSpelling(out); err != nil {
		return nil, err
	}
	if strings.TrimSpace(out[ParamPolicy]) == "" {
		return nil, csiserver.Invalid("the StorageClass has no parameter %q: name the DPUStoragePolicy there", ParamPolicy)
	}
	if err := parseEmulation(out); err != nil {
		return nil, err
	}
	function, err := parseFunction(out)
	if err != nil {
		return nil, err
	}
	hotplug, err := parseHotplug(out)
	if err != nil {
		return nil, err
	}
	if hotplug && function == string(provisioner.VF) {
		return nil, csiserver.Invalid("%s=true needs %s=pf: a virtual function cannot be hot-plugged", ParamHotplug, ParamFunctionType)
	}
	if out[ParamEmulation] == emulationVirtioFS && !hotplug {
		return nil, csiserver.Invalid("%s=%s needs %s=pf and %s=true: virtio-fs is shown on hot-plugged physical functions alone; leave both out, or give them so",
			ParamEmulation, emulationVirtioFS, ParamFunctionType, ParamHotplug)
	}
	if err := parseReplication(out); err != nil {
		return nil, err
	}
	out[ParamFunctionType] = function
	out[ParamHotplug] = strconv.FormatBool(hotplug)
	return out, nil
}

// parseEmulation leaves virtiofs there, in lower case, with the only function
// that there is for it as the default, and takes nvme out.
func parseEmulation(params map[string]string) error {
	switch e := strings.ToLower(params[ParamEmulation]); e {
	case "", emulationNVMe:
		delete(params, ParamEmulation)
	case emulationVirtioFS:
		params[ParamEmulation] = e
		if params[ParamFunctionType] == "" {
			params[ParamFunctionType] = string(provisioner.PF)
		}
		if params[ParamHotplug] == "" {
			params[ParamHotplug] = "true"
		}
	default:
		return csiserver.Invalid("parameter %s is %q, allowed are %s and %s", ParamEmulation, params[ParamEmulation], emulationNVMe, emulationVirtioFS)
	}
	return nil
}

func parseFunction(params map[string]string) (string, error) {
	v, ok := params[ParamFunctionType]
	if !ok || v == "" {
		return string(provisioner.VF), nil
	}
	switch f := strings.ToLower(v); provisioner.FunctionType(f) {
	case provisioner.VF, provisioner.PF:
		return f, nil
	}
	return "", csiserver.Invalid("parameter %s is %q, allowed are vf and pf", ParamFunctionType, v)
}

func parseHotplug(params map[string]string) (bool, error) {
	v, ok := params[ParamHotplug]
	if !ok || v == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, csiserver.Invalid("parameter %s is %q, allowed are true and false", ParamHotplug, v)
	}
	return b, nil
}

// checkSpelling refuses keys that are nearly one of ours: passed on to a
// vendor who ignores them they would change the volume in silence.
func checkSpelling(params map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(params)) {
		if slices.Contains(ourParameters, k) {
			continue
		}
		for _, ours := range ourParameters {
			if distance(strings.ToLower(k), strings.ToLower(ours)) <= maxTypos {
				return fmt.Errorf("unknown parameter %q: did you mean %q?: %w", k, ours, provisioner.ErrInvalid)
			}
		}
	}
	return nil
}

// distance is the Levenshtein distance of a and b, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
