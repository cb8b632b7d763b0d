package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/machine"
)

func powerOff() *cobra.Command {
	return onMachine("power-off", "Kill a machine at once, as a power failure does", (*devcluster.Cluster).PowerOff)
}

func powerOn() *cobra.Command {
	return onMachine("power-on", "Boot a machine that is off and start its processes again", (*devcluster.Cluster).PowerOn)
}

func powerState() *cobra.Command {
	return onMachine("power-state", "Print On or Off: whether a machine is on", func(c *devcluster.Cluster, _ context.Context, name string) error {
		on, err := c.IsOn(name)
		if err != nil {
			return err
		}
		state := "Off"
		if on {
			state = "On"
		}
		_, err = fmt.Println(state)
		return err
	})
}

func onMachine(name, short string, act func(*devcluster.Cluster, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " MACHINE",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := devcluster.Load()
			if err != nil {
				return err
			}
			return act(c, cmd.Context(), args[0])
		},
	}
}

// machineInit becomes process 1 of a machine; only the bed itself runs it.
func machineInit() *cobra.Command {
	return &cobra.Command{
		Use:    machine.InitCommand + " FILE",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return machine.Init(args[0]) },
	}
}
