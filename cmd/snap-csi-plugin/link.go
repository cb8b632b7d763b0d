package main

import (
	"context"

	"github.com/moor-storage/moor/pkg/node/hostprobe"
)

// answerDPU answers the DPU on the link between the two, so that it knows this
// host to be alive, until ctx ends.
func (n *nodeOptions) answerDPU(ctx context.Context) error {
	return hostprobe.Serve(ctx, n.linkAddress)
}
