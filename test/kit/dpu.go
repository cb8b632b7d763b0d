package kit

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/writelog"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// rpcTimeout bounds one call of a test to an emulator.
const rpcTimeout = 30 * time.Second

// SNAP reaches the emulated SNAP service of a DPU.
func SNAP(dpu string) *snaprpc.Client {
	own := filepath.Join(layout.MachineDir(dpu), "var-lib-moor")
	return snaprpc.New(filepath.Join(own, "snap", "providers", "nvidia", "snap.sock"), rpcTimeout)
}

// MediumLog reads what the medium accepted of a volume, in order, from every
// DPU. The id is that of the vendor's volume.
func MediumLog(vendorVolume string) ([]writelog.Write, error) {
	return writelog.Read(writelog.Path(filepath.Join(layout.TargetSource(), "log"), vendorVolume+".img"))
}

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
