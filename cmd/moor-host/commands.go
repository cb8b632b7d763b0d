package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/pkg/node/zerotrust"
)

func (h *host) list() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the NVMe namespaces and file systems that are shown to this host", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown, err := zerotrust.Devices(h.finder())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(shown)
			}
			return table(cmd.OutOrStdout(), shown)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func table(out io.Writer, shown []zerotrust.Shown) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ADDRESS\tNAMESPACE\tUUID\tBYTES\tDEVICE")
	for _, b := range shown {
		if b.Tag != "" {
			fmt.Fprintf(w, "%s\t-\t-\t-\ttag=%s\n", b.Address, b.Tag)
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\n", b.Address, b.NamespaceID, b.UUID, b.SizeBytes, b.Path)
	}
	return w.Flush()
}

func (h *host) prepare() *cobra.Command {
	var device string
	var vfs bool
	cmd := &cobra.Command{
		Use: "prepare", Short: "Bind the nvme driver to the DPU's functions, and make the virtual ones", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return h.finder().Prepare(cmd.Context(), device, vfs) },
	}
	cmd.Flags().StringVar(&device, "device-id", "6001", "PCI device id of the DPU's physical functions")
	cmd.Flags().BoolVar(&vfs, "create-vfs", true, "make all virtual functions where there are none")
	return cmd
}

func (h *host) mount() *cobra.Command {
	var fsType, options string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "mount DEVICE DIRECTORY", Short: "Mount a file system, or a device, on which one is made if it is blank", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := zerotrust.NewEntry(args[0], args[1], fsType, options)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), wait, fmt.Errorf("--wait of %s is over", wait))
			defer cancel()
			return h.withAgent(ctx, func(ctx context.Context, a *zerotrust.Agent) error { return a.Mount(ctx, e) })
		},
	}
	cmd.Flags().StringVar(&fsType, "fstype", "", "ext4, the default, or xfs; a device that holds anything else is left alone. virtiofs for a device that is a file system already, the default for a tag")
	cmd.Flags().StringVarP(&options, "options", "o", "", "options of the mount, separated by commas; with ro nothing is written")
	cmd.Flags().DurationVar(&wait, "wait", 90*time.Second, "how long to wait for the device, and to make a file system")
	return cmd
}

func (h *host) umount() *cobra.Command {
	return &cobra.Command{
		Use: "umount DIRECTORY", Short: "Unmount a device, also one that is gone", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("directory %q: %w", args[0], err)
			}
			return h.withAgent(cmd.Context(), func(ctx context.Context, a *zerotrust.Agent) error { return a.Unmount(ctx, dir) })
		},
	}
}

func (h *host) watch() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "watch", Short: "Mount what a table names when the DPU shows it, unmount it when the DPU takes it away", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := readTable(file)
			if err != nil {
				return err
			}
			version.LogStart(logr.FromContextOrDiscard(cmd.Context()), "moor-host")
			return h.withAgent(cmd.Context(), func(ctx context.Context, a *zerotrust.Agent) error {
				a.Watch(ctx, entries)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&file, "table", "/etc/moor-host.tab", "devices and where to mount them: device, directory, type, options a line")
	return cmd
}

func readTable(file string) (entries []zerotrust.Entry, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open the table, see --table: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if entries, err = zerotrust.ParseTable(f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return entries, nil
}
