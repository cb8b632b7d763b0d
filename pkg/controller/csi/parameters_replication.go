package csi

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moor-storage/moor/pkg/csiserver"
)

// The StorageClass parameters that say how many hosts hold a volume ready. All
// are optional; what the access modes decide is filled in by the platform.
const (
	// ParamMaxShares is the most hosts that may have the volume, replicas
	// included: 1 (default) or more.
	ParamMaxShares = "maxShares"
	// ParamReplicas is how many replicas are kept: 0 to maxShares-1. Default:
	// maxShares-1 for a volume with a single writer, else 0.
	ParamReplicas = "maxMountReplicaCount"
	// ParamWarmth is PreEmulated (default) or Attached.
	ParamWarmth = "replicaWarmth"
	// ParamReleaseAfter is how long replicas outlive the last primary: a
	// duration of whole seconds, such as 90s or 5m. Default: the controller's
	// --replica-release-after.
	ParamReleaseAfter = "replicaReleaseAfter"
	// ParamFailover is Fence or Off; Fence is the default if maxShares is
	// greater than 1.
	ParamFailover = "failover"
)

var choices = map[string][]string{
	ParamWarmth:   {"PreEmulated", "Attached"},
	ParamFailover: {"Fence", "Off"},
}

// parseReplication checks the parameters of replication and writes numbers
// their usual way; an empty value counts as none.
func parseReplication(params map[string]string) error {
	for _, key := range []string{ParamMaxShares, ParamReplicas, ParamWarmth, ParamReleaseAfter, ParamFailover} {
		if params[key] == "" {
			delete(params, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(choices)) {
		if v, ok := params[key]; ok && !slices.Contains(choices[key], v) {
			return csiserver.Invalid("parameter %s is %q, allowed are %s", key, v, strings.Join(choices[key], " and "))
		}
	}
	if err := parseReleaseAfter(params); err != nil {
		return err
	}
	shares, err := parseCount(params, ParamMaxShares, 1)
	if err != nil {
		return err
	}
	if shares < 1 {
		return csiserver.Invalid("parameter %s is %d: at least 1 is needed, the primary's", ParamMaxShares, shares)
	}
	replicas, err := parseCount(params, ParamReplicas, 0)
	if err != nil {
		return err
	}
	if replicas < 0 || replicas >= shares {
		return csiserver.Invalid("parameter %s is %d, allowed are 0 to %d: %s is %d, and one share is the primary's",
			ParamReplicas, replicas, shares-1, ParamMaxShares, shares)
	}
	return nil
}

func parseReleaseAfter(params map[string]string) error {
	v, ok := params[ParamReleaseAfter]
	if !ok {
		return nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d != d.Truncate(time.Second) || d > math.MaxInt32*time.Second {
		return csiserver.Invalid("parameter %s is %q: a duration of whole seconds is wanted, such as 90s or 5m", ParamReleaseAfter, v)
	}
	params[ParamReleaseAfter] = d.String()
	return nil
}

func parseCount(params map[string]string, key string, def int64) (int64, error) {
	v, ok := params[key]
	if !ok {
		return def, nil
	}
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil {
		return 0, csiserver.Invalid("parameter %s is %q: a whole number is wanted, at most %d", key, v, int64(1<<31-1))
	}
	params[key] = strconv.FormatInt(n, 10)
	return n, nil
}
