package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/showlog"
	"github.com/moor-storage/moor/reference/writelog"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/proof"
)

// VendorVolume is the vendor's id of a DPUVolume. The client is that of the
// DPU cluster.
func VendorVolume(ctx context.Context, dpu client.Client, volume string) (string, error) {
	claim, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if err := dpu.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: kube.PVCName(volume)}, claim); err != nil {
		return "", fmt.Errorf("find the vendor's claim of volume %s: %w", volume, err)
	}
	if err := dpu.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err != nil {
		return "", fmt.Errorf("find the vendor's volume of volume %s: %w", volume, err)
	}
	return pv.Spec.CSI.VolumeHandle, nil
}

// mediumLogs is the directory of the logs of the target and of all emulators.
func mediumLogs() string { return filepath.Join(layout.TargetSource(), "log") }

// TargetLog reads what the medium accepted of a volume, in order, from every
// DPU. The id is that of the vendor's volume.
func TargetLog(vendorVolume string) ([]writelog.Write, error) {
	return writelog.Read(writelog.Path(mediumLogs(), image(vendorVolume)))
}

// image is the file of a volume of the reference vendor.
func image(vendorVolume string) string { return vendorVolume + ".img" }

// Logs say under which names a volume is in the logs.
type Logs struct {
	// Written is the name of the file to which the medium writes.
	Written string
	// Shown are the names by which hosts are shown the volume.
	Shown []string
}

// LogsOf are those of a volume of the reference vendor.
func LogsOf(vendorVolume string) Logs {
	return Logs{Written: image(vendorVolume), Shown: []string{vendorVolume}}
}

// PodLogs are those of a volume that staging pods make a block device of on DPUs: the emulators record what they
// write to that.
func PodLogs(volume string) Logs {
	key := snaprpc.FSDevName(kube.PVCName(volume))
	return Logs{Written: "p" + key, Shown: []string{"p" + key, "q" + key}}
}

// underWay is how long the target may take between a write and its record.
const underWay = 5 * time.Second

// Recorded is what was recorded of a volume outside of Moor: writes and reads by the target,
// which hosts saw it, and what was recorded beneath the target, nil if the bed does not record
// there. The id is that of the vendor's volume. Read the claim's record after this: it must
// not know less.
func Recorded(ctx context.Context, bed *devcluster.Cluster, vendorVolume string) (proof.History, error) {
	return RecordedAs(ctx, bed, LogsOf(vendorVolume))
}

// RecordedAs is Recorded of a volume that is in the logs under these names.
func RecordedAs(ctx context.Context, bed *devcluster.Cluster, names Logs) (proof.History, error) {
	h := proof.History{Volume: names.Written}
	var err error
	if h.Writes, h.Below, err = writeLogs(ctx, bed, names.Written); err != nil {
		return h, err
	}
	logs := mediumLogs()
	if h.Reads, err = writelog.Reads(writelog.ReadsPath(logs, names.Written)); err != nil {
		return h, fmt.Errorf("read when volume %s was read: %w", names.Written, err)
	}
	for _, name := range names.Shown {
		exposures, err := showlog.Read(logs, name)
		if err != nil {
			return h, fmt.Errorf("read who was shown volume %s: %w", name, err)
		}
		h.Exposures = append(h.Exposures, exposures...)
	}
	slices.SortStableFunc(h.Exposures, func(a, b showlog.Exposure) int { return cmp.Compare(a.Begin, b.Begin) })
	return h, nil
}

func writeLogs(ctx context.Context, bed *devcluster.Cluster, file string) ([]writelog.Write, *proof.Below, error) {
	log := func() ([]writelog.Write, error) { return writelog.Read(writelog.Path(mediumLogs(), file)) }
	if !bed.Options().RecordBelow {
		logged, err := log()
		return logged, nil, err
	}
	now, err := writelog.Now()
	if err != nil {
		return nil, nil, err
	}
	writes, err := writelog.Read(writelog.Path(layout.BelowLogs(), file))
	if err != nil {
		return nil, nil, fmt.Errorf("read what was recorded beneath the target of volume %s: %w", file, err)
	}
	below := &proof.Below{Writes: writes, ReadAt: now}
	// A write may be between the recorder and the target's log. One that stays
	// away from the log is for the proof to tell.
	var logged []writelog.Write
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, underWay, true, func(context.Context) (bool, error) {
		var err error
		logged, err = log()
		return err == nil && len(below.Unlogged(logged)) == 0, err
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, nil, fmt.Errorf("read the write log of volume %s: %w", file, err)
	}
	return logged, below, ctx.Err()
}
