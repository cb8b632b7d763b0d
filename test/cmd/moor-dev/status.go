package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/moor-storage/moor/test/devcluster"
)

func status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show machines and processes",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := devcluster.Load()
			if err != nil {
				return err
			}
			return table(c)
		},
	}
}

func table(c *devcluster.Cluster) error {
	machines, err := c.Machines()
	if err != nil {
		return err
	}
	processes, err := c.Processes()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tADDRESS\tSTATE\tPID\tBOOTED")
	for _, m := range machines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s ago\n", m.Name, m.IP, word(m.Identity.Alive(), "on", "off"), m.Identity.PID, age(m.Booted))
	}
	fmt.Fprintln(w, "\nPROCESS\tMACHINE\tSTATE\tPID\tLOG")
	for _, p := range processes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", p.Name, p.Machine, word(p.Identity.Alive(), "runs", "ended"), p.Identity.PID, c.Log(p.Name))
	}
	return w.Flush()
}

func word(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func age(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }
