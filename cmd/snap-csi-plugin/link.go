package main

import (
	"context"

	"github.com/moor-storage/moor/pkg/node/hostprobe"
)

// answerDPU answers the DPU on the link between the two, so that it knows this
// host to be alive, until ctx ends; and notices when it is not asked any more.
func (n *nodeOptions) answerDPU(ctx context.Context, unprobed *hostprobe.Unprobed) error {
	go unprobed.Run(ctx)
	return hostprobe.Serve(ctx, n.linkAddress, unprobed.Probed)
}
