// Command snap-node-driver runs on a DPU: it has vendors' plugins make the
// devices of the volumes attached to this DPU, shows them to the host through
// SNAP, and takes them away again.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/internal/daemon"
)

func main() {
	var o options
	var logs daemon.LogFlags
	o.bind(pflag.CommandLine)
	logs.Bind(pflag.CommandLine)
	pflag.Parse()
	ctrl.SetLogger(logs.Logger())
	if err := o.run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "snap-node-driver:", err)
		os.Exit(1)
	}
}
