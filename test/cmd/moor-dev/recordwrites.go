package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/recordfs"
)

// recordWrites is the recorder beneath the storage target of a bed. It ends with
// its mount, and its mount with it.
func recordWrites() *cobra.Command {
	return &cobra.Command{
		Use:    devcluster.RecorderCommand + " SOURCE TARGET LOGDIR",
		Short:  "Show a directory elsewhere, and record each write to its files",
		Hidden: true,
		Args:   cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			log := funcr.New(func(prefix, args string) { fmt.Fprintln(cmd.ErrOrStderr(), prefix, args) }, funcr.Options{})
			server, err := recordfs.Mount(args[1], recordfs.Options{Source: args[0], LogDir: args[2], Log: log})
			if err != nil {
				return err
			}
			stop := context.AfterFunc(cmd.Context(), func() { _ = server.Unmount() })
			defer stop()
			server.Wait()
			return nil
		},
	}
}
