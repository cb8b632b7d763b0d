package main

import (
	"errors"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/test/devcluster"
)

// commandEnded is how a command of the user's own ended: it has said why
// itself, and moor-dev ends as it did.
type commandEnded struct{ *exec.ExitError }

func asCommand(err error) error {
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return commandEnded{ended}
	}
	return err
}

func execIn() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec MACHINE -- COMMAND [ARGUMENT...]",
		Short: "Run a command inside a machine: hub, host-N or dpu-N",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := devcluster.Load()
			if err != nil {
				return err
			}
			argv := args[1:]
			if argv[0] == "--" && len(argv) > 1 {
				argv = argv[1:]
			}
			run, err := c.Command(args[0], []string{"TERM=" + os.Getenv("TERM")}, argv...)
			if err != nil {
				return err
			}
			run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
			return asCommand(run.Run())
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func logs() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs PROCESS",
		Short: "Show the log of a process",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := devcluster.Load()
			if err != nil {
				return err
			}
			return c.FollowLog(cmd.Context(), args[0], follow, os.Stdout)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show what is added, until interrupted")
	return cmd
}
