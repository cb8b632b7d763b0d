package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/kubebuild"
)

func build() *cobra.Command {
	var only []string
	var printBin bool
	release := kubebuild.Default
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build Kubernetes, etcd and the CSI sidecars into the cache",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := devcluster.FindRoot()
			if err != nil {
				return err
			}
			bin, err := kubebuild.Build(cmd.Context(), root, release, only, os.Stderr)
			if err == nil && printBin {
				fmt.Println(bin)
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "build only these programs, for example etcd,kube-apiserver,kubectl")
	kubernetes(cmd, &release)
	cmd.Flags().BoolVar(&printBin, "print-bin", false, "print the directory that holds the programs")
	return cmd
}
