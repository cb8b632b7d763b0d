package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/cleanup"
)

func down() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the bed and everything it made",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return devcluster.Down(cmd.Context(), os.Stderr)
		},
	}
}

func leftovers() *cobra.Command {
	return &cobra.Command{
		Use:   "leftovers",
		Short: "List what a bed left behind or has in use; exit code 1 if there is anything",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			left, err := cleanup.Leftovers()
			if err != nil {
				return err
			}
			for _, what := range left {
				fmt.Println(what)
			}
			if len(left) > 0 {
				return fmt.Errorf("%d things are left; moor-dev down removes them", len(left))
			}
			return nil
		},
	}
}
