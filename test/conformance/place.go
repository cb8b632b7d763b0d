package main

import (
	"context"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

// place moves a host with its DPU to a place of the vendor's: the suite has to find
// hosts at several.
func place(ctx context.Context, host, to string) error {
	c, err := devcluster.Load()
	if err != nil {
		return err
	}
	clients, err := kit.Connect(c)
	if err != nil {
		return err
	}
	return kit.MoveHost(ctx, c, clients, host, to)
}
