package csictl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moor-storage/moor/pkg/csiserver"
)

// session is how to reach the driver.
type session struct {
	endpoint string
	timeout  time.Duration
}

// Command returns the command "csi" with every call below it.
func Command() *cobra.Command {
	var s session
	cmd := &cobra.Command{Use: "csi", Short: "Call a CSI driver"}
	cmd.PersistentFlags().StringVar(&s.endpoint, "endpoint", "", "where the driver serves: unix:///absolute/path or tcp://host:port; required")
	cmd.PersistentFlags().DurationVar(&s.timeout, "timeout", time.Minute, "how long one call may take")
	cmd.AddCommand(
		group("identity", "Ask a driver who it is", s.identity()...),
		group("controller", "Make, attach and remove volumes", s.controller()...),
		group("node", "Use attached volumes on the driver's machine", s.node()...),
	)
	return cmd
}

func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(verbs...)
	return cmd
}

// call is what a verb does with a connection; what it prints goes to out.
type call func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, args []string) error

// verb makes a command of a call.
func (s *session) verb(use, short string, args cobra.PositionalArgs, flags func(*pflag.FlagSet), do call) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := s.dial()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
			defer cancel()
			return errors.Join(do(ctx, conn, cmd.OutOrStdout(), args), conn.Close())
		},
	}
	if flags != nil {
		flags(cmd.Flags())
	}
	return cmd
}

// dial does not connect yet.
func (s *session) dial() (*grpc.ClientConn, error) {
	network, address, err := csiserver.ParseEndpoint(s.endpoint)
	if err != nil {
		return nil, fmt.Errorf("--endpoint: %w", err)
	}
	target := "passthrough:///" + address
	if network == "unix" {
		target = "unix://" + address
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, fmt.Errorf("use --endpoint %s: %w", s.endpoint, err)
	}
	return conn, nil
}

// each calls do for every argument and prints the argument after it.
func each(args []string, out io.Writer, do func(arg string) error) error {
	for _, arg := range args {
		if err := do(arg); err != nil {
			return err
		}
		line(out, arg)
	}
	return nil
}

// line prints columns as csc does.
func line(out io.Writer, columns ...string) { fmt.Fprintln(out, strings.Join(columns, "  ")) }
