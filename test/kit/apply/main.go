// Command apply applies manifests to a cluster of the running test bed:
// apply host|dpu|dpu2 PATH...
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "apply:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: apply host|dpu|dpu2 PATH, one or more")
	}
	c, err := devcluster.Load()
	if err != nil {
		return err
	}
	clients, err := kit.Connect(c)
	if err != nil {
		return err
	}
	to := clients.In(args[0])
	if to == nil {
		return fmt.Errorf("the bed has no %s cluster", args[0])
	}
	return kit.Apply(context.Background(), to, args[1:]...)
}
