// Command snap-node-driver runs on a DPU: it has vendors' plugins make the
// devices of the volumes attached to this DPU, shows them to the host through
// SNAP, and takes them away again.
package main

import (
	"github.com/moor-storage/moor/internal/daemon"
)

func main() {
	var o options
	daemon.Main("snap-node-driver", o.bind, o.run)
}
