package kit

import (
	"context"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/test/devcluster"
)

// sidecars are Kubernetes' own processes beside the CSI drivers of a bed.
func sidecars(bed *devcluster.Cluster) []string {
	o, out := bed.Options(), []string{"csi-provisioner", "csi-snapshotter", "csi-resizer"}
	for _, of := range bed.DPUClusters() {
		out = append(out, "csi-provisioner-"+of.Cluster, "csi-snapshotter-"+of.Cluster, "csi-resizer-"+of.Cluster)
	}
	if o.AttachMode != dpf.AttachNode { // else hosts ask for volumes by themselves
		out = append(out, "csi-attacher")
	}
	if o.LocalDriver {
		out = append(out, "csi-provisioner-local", "csi-attacher-local", "csi-resizer-local", "csi-snapshotter-local")
	}
	return out
}

// sidecarLook is how often they are looked at, sidecarPause how long at most one is
// left alone that did not start.
const (
	sidecarLook  = 100 * time.Millisecond
	sidecarPause = 2 * time.Second
)

// KeepSidecars does what a kubelet does, until the context ends: it starts a
// sidecar again that has ended, as they do when their driver was restarted.
func KeepSidecars(ctx context.Context, bed *devcluster.Cluster, report func(format string, args ...any)) {
	ticker := time.NewTicker(sidecarLook)
	defer ticker.Stop()
	pause := flowcontrol.NewBackOff(sidecarLook, sidecarPause)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, name := range sidecars(bed) {
			if bed.Running(name) || pause.IsInBackOffSinceUpdate(name, time.Now()) {
				continue
			}
			if err := bed.Restart(ctx, name); err != nil && ctx.Err() == nil {
				report("start %s again: %v\n", name, err)
				pause.Next(name, time.Now())
			}
		}
	}
}
