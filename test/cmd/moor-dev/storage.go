package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/recordfs"
	"github.com/moor-storage/moor/test/share"
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

// shareStorage is a storage for PavProvisioners, which lets clients in by name; show and hide are what its
// staging and unstaging pods run.
func shareStorage() *cobra.Command {
	cmd := &cobra.Command{Use: devcluster.ShareCommand, Short: "A storage that lets clients in by name", Hidden: true}
	log := func(cmd *cobra.Command) logr.Logger {
		return funcr.New(func(prefix, args string) { fmt.Fprintln(cmd.ErrOrStderr(), prefix, args) }, funcr.Options{})
	}
	cmd.AddCommand(&cobra.Command{
		Use: "serve VOLUMES-ADDRESS ADMIN-ADDRESS DIR LOGDIR", Args: cobra.ExactArgs(4), Short: "Serve it",
		RunE: func(cmd *cobra.Command, args []string) error {
			volumes, err := net.Listen("tcp", args[0])
			if err != nil {
				return err
			}
			admin, err := net.Listen("tcp", args[1])
			if err != nil {
				return errors.Join(err, volumes.Close())
			}
			return share.New(args[2], args[3], log(cmd)).Serve(cmd.Context(), volumes, admin)
		},
	}, &cobra.Command{
		Use: "show ADDRESS VOLUME NODE CLIENT DIR PATH READY", Args: cobra.ExactArgs(7), Short: "Make a device of a volume, and serve it",
		RunE: func(cmd *cobra.Command, args []string) error {
			c := share.Client{Address: args[0], Volume: args[1], Node: args[2], Name: args[3]}
			return c.Show(cmd.Context(), args[4], args[5], args[6], log(cmd))
		},
	}, &cobra.Command{
		Use: "hide VOLUME NODE", Args: cobra.ExactArgs(2), Short: "Give its devices back",
		RunE: func(_ *cobra.Command, args []string) error {
			return share.Client{Volume: args[0], Node: args[1]}.Hide()
		},
	})
	return cmd
}
