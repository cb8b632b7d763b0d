package kit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
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
	return writelog.Read(writelog.Path(mediumLogs(), vendorVolume+".img"))
}

// underWay is how long the target may take between a write and its record.
const underWay = 5 * time.Second

// Recorded is what was recorded of a volume outside of Moor: writes and reads by the target,
// which hosts saw it, and what was recorded beneath the target, nil if the bed does not record
// there. The id is that of the vendor's volume. Read the claim's record after this: it must
// not know less.
func Recorded(ctx context.Context, bed *devcluster.Cluster, vendorVolume string) (proof.History, error) {
	h := proof.History{Volume: vendorVolume}
	var err error
	if h.Writes, h.Below, err = writeLogs(ctx, bed, vendorVolume); err != nil {
		return h, err
	}
	logs := mediumLogs()
	if h.Reads, err = writelog.Reads(writelog.ReadsPath(logs, vendorVolume+".img")); err != nil {
		return h, fmt.Errorf("read when volume %s was read: %w", vendorVolume, err)
	}
	if h.Exposures, err = showlog.Read(logs, vendorVolume); err != nil {
		return h, fmt.Errorf("read who was shown volume %s: %w", vendorVolume, err)
	}
	return h, nil
}

func writeLogs(ctx context.Context, bed *devcluster.Cluster, vendorVolume string) ([]writelog.Write, *proof.Below, error) {
	if !bed.Options().RecordBelow {
		logged, err := TargetLog(vendorVolume)
		return logged, nil, err
	}
	now, err := writelog.Now()
	if err != nil {
		return nil, nil, err
	}
	writes, err := writelog.Read(writelog.Path(layout.BelowLogs(), vendorVolume+".img"))
	if err != nil {
		return nil, nil, fmt.Errorf("read what was recorded beneath the target of volume %s: %w", vendorVolume, err)
	}
	below := &proof.Below{Writes: writes, ReadAt: now}
	// A write may be between the recorder and the target's log. One that stays
	// away from the log is for the proof to tell.
	var logged []writelog.Write
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, underWay, true, func(context.Context) (bool, error) {
		var err error
		logged, err = TargetLog(vendorVolume)
		return err == nil && len(below.Unlogged(logged)) == 0, err
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, nil, fmt.Errorf("read the write log of volume %s: %w", vendorVolume, err)
	}
	return logged, below, ctx.Err()
}
