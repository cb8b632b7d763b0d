package extender

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/moor-storage/moor/pkg/scheduler/refused"
)

const (
	// SignalName is that of the CSIStorageCapacity by which the extender has
	// kube-scheduler try pods again. deploy/scheduler/rbac.yaml makes it; it is of
	// no StorageClass and no node, so that it says nothing about any capacity.
	SignalName = "scheduler-extender"
	// OpenedAnnotation is on it: when a node that had refused a pod could serve it.
	OpenedAnnotation = "storage.moor.dev/opened"
	// Keep is how long a pod that was refused is remembered: kube-scheduler asks
	// again about any pod after five minutes (its flush of unschedulable pods).
	Keep = 10 * time.Minute
	// writing is how long one request may take.
	writing = 5 * time.Second
)

// Retry has pods tried again that the extender refused, once a node that refused
// them can serve them. kube-scheduler does not watch DPUs, and an extender has no
// word of its own for it; but what an extender refused is tried again at each event
// of any kind that the scheduler watches for its plugins, and that of volumes
// watches CSIStorageCapacities. The annotation of one is changed, at most once a
// second and only while such a pod waits. It is a manager.Runnable of every replica.
type Retry struct {
	Client    client.Client
	Namespace string
	Refused   *refused.Pods
	Clock     clock.PassiveClock
}

// NeedLeaderElection is false: each replica has pods of its own.
func (r *Retry) NeedLeaderElection() bool { return false }

// Start runs until ctx ends.
func (r *Retry) Start(ctx context.Context) error {
	r.Refused.Run(ctx, r.signal)
	return nil
}

// signal wakes the scheduler, which asks about each pod again.
func (r *Retry) signal(ctx context.Context, pods []*corev1.Pod) error {
	at := r.Clock.Now().UTC().Format(time.RFC3339Nano)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{OpenedAnnotation: at}}})
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, writing)
	defer cancel()
	capacity := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: SignalName}}
	if err := r.Client.Patch(limited, capacity, client.RawPatch(types.MergePatchType, patch)); err != nil {
		err = fmt.Errorf("a node can serve %d pods that it refused: have kube-scheduler try them again by CSIStorageCapacity %s/%s (deploy/scheduler/rbac.yaml makes it; "+
			"without it they wait up to five minutes): %w", len(pods), r.Namespace, SignalName, err)
		log.FromContext(ctx).Error(err, "try refused pods again")
		return err
	}
	return nil
}
