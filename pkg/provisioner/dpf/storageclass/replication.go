package storageclass

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// replication is what a class says of how many hosts hold a volume ready; nil
// and "" is what it does not say.
type replication struct {
	shares, replicas    *int32
	warmth              storagev1alpha1.Warmth
	releaseAfterSeconds *int32
	failover            storagev1alpha1.FailoverMode
	pathTimeoutSeconds  *int32
}

func parseReplication(parameters map[string]string) (out replication, err error) {
	failover := storagev1alpha1.FailoverMode(parameters[storagev1alpha1.ParameterFailover])
	if out.failover, err = oneOf(storagev1alpha1.ParameterFailover, failover, storagev1alpha1.FailoverFence, storagev1alpha1.FailoverOff); err != nil {
		return out, err
	}
	warmth := storagev1alpha1.Warmth(parameters[storagev1alpha1.ParameterWarmth])
	if out.warmth, err = oneOf(storagev1alpha1.ParameterWarmth, warmth, storagev1alpha1.WarmthPreEmulated, storagev1alpha1.WarmthAttached); err != nil {
		return out, err
	}
	if out.releaseAfterSeconds, err = parseSeconds(parameters, storagev1alpha1.ParameterReleaseAfter); err != nil {
		return out, err
	}
	if out.pathTimeoutSeconds, err = parsePathTimeout(parameters); err != nil {
		return out, err
	}
	if out.shares, err = parseCount(parameters, storagev1alpha1.ParameterMaxShares); err != nil {
		return out, err
	}
	if n := out.maxShares(); n < 1 {
		return out, invalid("parameter %s is %d: at least 1 is needed, the primary's", storagev1alpha1.ParameterMaxShares, n)
	}
	if out.replicas, err = parseCount(parameters, storagev1alpha1.ParameterReplicas); err != nil {
		return out, err
	}
	if n := out.replicas; n != nil && (*n < 0 || *n >= out.maxShares()) {
		return out, invalid("parameter %s is %d, allowed are 0 to %d: %s is %d, and one share is the primary's",
			storagev1alpha1.ParameterReplicas, *n, out.maxShares()-1, storagev1alpha1.ParameterMaxShares, out.maxShares())
	}
	if s := out.pathTimeoutSeconds; s != nil && *s > 0 && !out.fences() {
		return out, invalid("parameter %s is %s: a volume moves by itself only with %s=%s", storagev1alpha1.ParameterPathTimeout,
			parameters[storagev1alpha1.ParameterPathTimeout], storagev1alpha1.ParameterFailover, storagev1alpha1.FailoverFence)
	}
	return out, nil
}

// fences reports whether the volume fails over.
func (r replication) fences() bool {
	return r.failover == storagev1alpha1.FailoverFence || r.failover == "" && r.maxShares() > 1
}

func oneOf[T ~string](key string, value T, allowed ...T) (T, error) {
	if value == "" || slices.Contains(allowed, value) {
		return value, nil
	}
	return "", invalid("parameter %s is %q, allowed are %s and %s", key, string(value), string(allowed[0]), string(allowed[1]))
}

func parseSeconds(parameters map[string]string, key string) (*int32, error) {
	text := parameters[key]
	if text == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d != d.Truncate(time.Second) || d > math.MaxInt32*time.Second {
		return nil, invalid("parameter %s is %q: a duration of whole seconds is wanted, such as 90s or 5m", key, text)
	}
	out := int32(d / time.Second)
	return &out, nil
}

func parsePathTimeout(parameters map[string]string) (*int32, error) {
	const key = storagev1alpha1.ParameterPathTimeout
	out, err := parseSeconds(parameters, key)
	if err != nil || out == nil {
		return nil, err
	}
	if s := *out; s != 0 && (s < storagev1alpha1.MinPathTimeoutSeconds || s > storagev1alpha1.MaxPathTimeoutSeconds) {
		return nil, invalid("parameter %s is %q, allowed are %ds to %ds, and 0s for never", key, parameters[key], storagev1alpha1.MinPathTimeoutSeconds, storagev1alpha1.MaxPathTimeoutSeconds)
	}
	return out, nil
}

func parseCount(parameters map[string]string, key string) (*int32, error) {
	text := parameters[key]
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil, invalid("parameter %s is %q: a whole number is wanted, at most %d", key, text, math.MaxInt32)
	}
	out := int32(n)
	return &out, nil
}

func (r replication) maxShares() int32 {
	if r.shares == nil {
		return 1
	}
	return *r.shares
}

// Replication is what the class asks for of a volume with these access modes;
// nil if it is to have neither replicas nor a failover. Where nothing is said, a
// volume with a single writer gets all the replicas that maxShares allows, any
// other none. ErrInvalid for a warmth that the access modes do not allow.
func (c Class) Replication(modes []provisioner.AccessMode) (*storagev1alpha1.Replication, error) {
	r, single := c.replication, provisioner.SingleNode(modes)
	out := &storagev1alpha1.Replication{
		MaxShares: r.maxShares(), Warmth: storagev1alpha1.WarmthPreEmulated,
		ReleaseAfterSeconds: r.releaseAfterSeconds, Failover: storagev1alpha1.FailoverFence, PathTimeoutSeconds: r.pathTimeoutSeconds,
	}
	switch {
	case r.replicas != nil:
		out.MaxMountReplicaCount = *r.replicas
	case single:
		out.MaxMountReplicaCount = out.MaxShares - 1
	}
	if r.warmth != "" {
		out.Warmth = r.warmth
	}
	if r.failover != "" {
		out.Failover = r.failover
	}
	if single && out.Warmth == storagev1alpha1.WarmthAttached {
		return nil, fmt.Errorf("%w: parameter %s=%s is for volumes that several hosts may have at once: a single writer's replica must stay hidden from its host until it is promoted; leave the parameter out, or use ReadWriteMany",
			provisioner.ErrInvalid, storagev1alpha1.ParameterWarmth, storagev1alpha1.WarmthAttached)
	}
	if out.MaxShares == 1 && r.failover == "" {
		return nil, nil
	}
	return out, nil
}

// parameters are those that the class gives, in their usual form.
func (r replication) parameters() map[string]string {
	out := map[string]string{}
	for key, n := range map[string]*int32{storagev1alpha1.ParameterMaxShares: r.shares, storagev1alpha1.ParameterReplicas: r.replicas} {
		if n != nil {
			out[key] = strconv.Itoa(int(*n))
		}
	}
	for key, text := range map[string]string{storagev1alpha1.ParameterWarmth: string(r.warmth), storagev1alpha1.ParameterFailover: string(r.failover)} {
		if text != "" {
			out[key] = text
		}
	}
	for key, s := range map[string]*int32{storagev1alpha1.ParameterReleaseAfter: r.releaseAfterSeconds, storagev1alpha1.ParameterPathTimeout: r.pathTimeoutSeconds} {
		if s != nil {
			out[key] = (time.Duration(*s) * time.Second).String()
		}
	}
	return out
}
