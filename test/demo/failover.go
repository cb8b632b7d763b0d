package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/proof"
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
	acknowledged, err := d.journal(ctx)
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	witnesses, err := d.witnesses(watching)
	if err != nil {
		return err
	}
	d.say("\n6. %s loses power while the pod runs on it; its DPU stays up", pod.Spec.NodeName)
	timeline, err := kit.Watch(watching, failoverHops(d.clients, d.bed.Options().AttachMode, pod)...)
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
	if want := append(slices.Clone(acknowledged), "after"); !slices.Equal(strings.Fields(got), want) {
		return fmt.Errorf("the journal holds %q, acknowledged was %q: this must never happen", strings.Fields(got), want)
	}
	d.say("   acknowledged writes lost: 0 of %d", lines)
	if err := d.testify(ctx, witnesses); err != nil {
		return err
	}
	return d.bed.PowerOn(ctx, pod.Spec.NodeName)
}

// journal lets the pod write lines, each fsynced, and returns them.
func (d *demo) journal(ctx context.Context) ([]string, error) {
	var acknowledged []string
	for i := range lines {
		line := strconv.Itoa(i)
		if _, err := kit.Exec(ctx, d.bed, podKey, fmt.Sprintf("echo %s | dd of=/data/journal oflag=append conv=notrunc,fsync 2>/dev/null", line)); err != nil {
			return nil, err
		}
		acknowledged = append(acknowledged, line)
	}
	return acknowledged, nil
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

// witness looks at one volume from outside: at its medium and at the right to
// write it.
type witness struct {
	volume, vendorVolume string
	record               *proof.Recorder
	// old is what the claim said when the witness began.
	old proof.State
}

// witnesses begins to look at both volumes of the pod.
func (d *demo) witnesses(ctx context.Context) ([]witness, error) {
	var out []witness
	for _, name := range []string{"files-moored-0", "block-moored-0"} {
		claim := &corev1.PersistentVolumeClaim{}
		if err := d.clients.Host.Get(ctx, client.ObjectKey{Namespace: podKey.Namespace, Name: name}, claim); err != nil {
			return nil, fmt.Errorf("find the volume of claim %s: %w", name, err)
		}
		w, err := d.witness(ctx, claim.Spec.VolumeName)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

func (d *demo) witness(ctx context.Context, volume string) (witness, error) {
	w := witness{volume: volume}
	var err error
	if w.vendorVolume, err = kit.VendorVolume(ctx, d.clients.DPU, volume); err != nil {
		return w, err
	}
	if w.record, err = proof.Watch(ctx, d.clients.DPU, kit.Namespace, volume); err != nil {
		return w, err
	}
	states, err := w.record.States(ctx)
	if err != nil {
		return w, err
	}
	if len(states) == 0 {
		return w, fmt.Errorf("volume %s has no WriterClaim", volume)
	}
	w.old = states[len(states)-1]
	return w, nil
}

// testify counts what the old host wrote after the fence, and fails if any
// volume had two writers.
func (d *demo) testify(ctx context.Context, witnesses []witness) error {
	late := 0
	for _, w := range witnesses {
		// The logs are read first: they must not know more than the record.
		h, err := kit.Recorded(ctx, d.bed, w.vendorVolume)
		if err != nil {
			return err
		}
		h.Volume = w.volume
		if h.States, err = w.record.States(ctx); err != nil {
			return err
		}
		n, err := h.After(w.old.Holder, w.old.Epoch)
		if err != nil {
			return err
		}
		late += n
		var broken []error
		for _, v := range proof.Check(h) {
			broken = append(broken, errors.New(v.String()))
		}
		if err := errors.Join(broken...); err != nil {
			return fmt.Errorf("more than one writer; this must never happen: %w", err)
		}
	}
	d.say("   writes of the old host after the fence: %d", late)
	if late > 0 {
		return fmt.Errorf("the old host wrote %d times after the fence; this must never happen", late)
	}
	return nil
}
