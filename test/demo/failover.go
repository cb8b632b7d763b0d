package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// lines is how many lines are written and acknowledged before the power-off.
const lines = 10

// failover switches the pod's host off and times every hop until the pod has
// written again, then counts what was lost.
func (d *demo) failover(ctx context.Context) error {
	if err := d.until(ctx, "both volumes have a replica", d.replicasReady); err != nil {
		return err
	}
	pod, err := kit.AwaitRunning(ctx, d.clients.Host, podKey, "", podTimeout)
	if err != nil {
		return err
	}
	var acknowledged []string
	for i := range lines {
		line := strconv.Itoa(i)
		if _, err := kit.Exec(ctx, d.bed, podKey, fmt.Sprintf("echo %s | dd of=/data/journal oflag=append conv=notrunc,fsync 2>/dev/null", line)); err != nil {
			return err
		}
		acknowledged = append(acknowledged, line)
	}
	d.say("\n6. %s loses power while the pod runs on it; its DPU stays up", pod.Spec.NodeName)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	timeline, err := kit.Watch(watching, failoverHops(d.clients, pod)...)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := d.bed.PowerOff(ctx, pod.Spec.NodeName); err != nil {
		return err
	}
	if err := timeline.Wait(ctx, podTimeout); err != nil {
		return err
	}
	got, err := kit.Exec(ctx, d.bed, podKey, "echo after | dd of=/data/journal oflag=append conv=notrunc,fsync 2>/dev/null && cat /data/journal")
	if err != nil {
		return err
	}
	d.table(timeline)
	d.say("   %8.3f s  first fsynced write of the new pod", time.Since(begin).Seconds())
	if want := append(acknowledged, "after"); !slices.Equal(strings.Fields(got), want) {
		return fmt.Errorf("the journal holds %q, acknowledged was %q: this must never happen", strings.Fields(got), want)
	}
	d.say("   acknowledged writes lost: 0 of %d", lines)
	return d.bed.PowerOn(ctx, pod.Spec.NodeName)
}

// replicasReady reports whether every volume has a replica that only lacks its
// namespace.
func (d *demo) replicasReady(ctx context.Context) (bool, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := d.clients.Host.List(ctx, &list); err != nil {
		return false, err
	}
	ready := 0
	for i := range list.Items {
		a := &list.Items[i]
		if a.Spec.Role == storagev1alpha1.RoleReplica && meta.IsStatusConditionTrue(a.Status.Conditions, storagev1alpha1.ConditionPreEmulated) {
			ready++
		}
	}
	return ready == 2, nil
}
