package main

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/pkg/node/csi/deadmounts"
	"github.com/moor-storage/moor/pkg/node/hostprobe"
)

// answerDPU answers the DPU on the link between the two, so that it knows this
// host to be alive, until ctx ends; and notices when it is not asked any more: what it reads
// from the devices of mounts then is seen by the DPU.
func (n *nodeOptions) answerDPU(ctx context.Context, unprobed *hostprobe.Unprobed, mounts *deadmounts.Watcher) error {
	go mounts.Touch(ctrl.LoggerInto(ctx, ctrl.Log.WithName("deadmounts")), unprobed.Asks())
	go unprobed.Run(ctx)
	return hostprobe.Serve(ctx, n.linkAddress, unprobed.Probed)
}
