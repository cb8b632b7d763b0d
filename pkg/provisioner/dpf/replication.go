package dpf

import (
	"fmt"
	"math"
	"strconv"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// The parameters of a StorageClass that say how many hosts hold a volume
// ready. They go to DPUVolume.spec.replication, not to the vendor.
const (
	ParameterMaxShares = "maxShares"
	ParameterReplicas  = "maxMountReplicaCount"
	ParameterWarmth    = "replicaWarmth"
	// ParameterReleaseAfter is how long replicas outlive the last primary.
	ParameterReleaseAfter = "replicaReleaseAfter"
	ParameterFailover     = "failover"
)

// replication is what the parameters ask for; nil if the volume is to have
// neither replicas nor a failover. Where nothing is said, a volume with a
// single writer gets all the replicas that maxShares allows, any other none.
func replication(parameters map[string]string, modes []provisioner.AccessMode) (*storagev1alpha1.Replication, error) {
	shares, err := count(parameters, ParameterMaxShares, 1)
	if err != nil {
		return nil, err
	}
	single := provisioner.SingleNode(modes)
	wanted := int32(0)
	if single {
		wanted = max(0, shares-1)
	}
	if wanted, err = count(parameters, ParameterReplicas, wanted); err != nil {
		return nil, err
	}
	out := &storagev1alpha1.Replication{
		MaxShares: shares, MaxMountReplicaCount: wanted,
		Warmth: storagev1alpha1.WarmthPreEmulated, Failover: storagev1alpha1.FailoverFence,
	}
	if w := parameters[ParameterWarmth]; w != "" {
		out.Warmth = storagev1alpha1.Warmth(w)
	}
	if out.ReleaseAfterSeconds, err = seconds(parameters, ParameterReleaseAfter); err != nil {
		return nil, err
	}
	failover := parameters[ParameterFailover]
	if failover != "" {
		out.Failover = storagev1alpha1.FailoverMode(failover)
	}
	if single && out.Warmth == storagev1alpha1.WarmthAttached {
		return nil, fmt.Errorf("%w: parameter %s=%s is for volumes that several hosts may have at once: a single writer's replica must stay hidden from its host until it is promoted; leave the parameter out, or use ReadWriteMany",
			provisioner.ErrInvalid, ParameterWarmth, storagev1alpha1.WarmthAttached)
	}
	if shares < 1 || wanted < 0 || wanted >= shares {
		return nil, fmt.Errorf("%w: %s is %d and %s is %d: 1 share is the primary's, so at most %d replicas are possible",
			provisioner.ErrInvalid, ParameterMaxShares, shares, ParameterReplicas, wanted, max(0, shares-1))
	}
	if shares == 1 && failover == "" {
		return nil, nil
	}
	return out, nil
}

func seconds(parameters map[string]string, key string) (*int32, error) {
	value := parameters[key]
	if value == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > math.MaxInt32*time.Second {
		return nil, fmt.Errorf("%w: parameter %s is %q: a duration is wanted", provisioner.ErrInvalid, key, value)
	}
	out := int32(d / time.Second)
	return &out, nil
}

func count(parameters map[string]string, key string, def int32) (int32, error) {
	value := parameters[key]
	if value == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: parameter %s is %q: a whole number is wanted", provisioner.ErrInvalid, key, value)
	}
	return int32(n), nil
}

// replicationParameters are the parameters that a volume with this
// replication was made with.
func replicationParameters(r *storagev1alpha1.Replication) map[string]string {
	if r == nil {
		return map[string]string{ParameterMaxShares: "1", ParameterReplicas: "0"}
	}
	out := map[string]string{
		ParameterMaxShares: strconv.Itoa(int(r.MaxShares)), ParameterReplicas: strconv.Itoa(int(r.MaxMountReplicaCount)),
		ParameterWarmth: string(r.Warmth), ParameterFailover: string(r.Failover),
	}
	if s := r.ReleaseAfterSeconds; s != nil {
		out[ParameterReleaseAfter] = (time.Duration(*s) * time.Second).String()
	}
	return out
}
