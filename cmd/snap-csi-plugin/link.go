package main

import (
	"context"

	"github.com/moor-storage/moor/pkg/node/liveness"
)

// answerDPU answers the DPU on the link between the two, so that it knows this
// host to be alive, until ctx ends.
func (n *nodeOptions) answerDPU(ctx context.Context) error {
	return liveness.Serve(ctx, n.linkAddress)
}
