package moor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

const (
	// readyTimeout is generous: machines of CI are slow at times.
	readyTimeout = 3 * time.Minute
	driver       = "csi.snap.nvidia.com"
	// VendorDriver is the reference vendor's driver in the DPU cluster.
	VendorDriver = "local.csi.moor.dev"
)

// awaitReady returns once every DPU has reported a working SNAP service and
// plugin, and every kubelet has registered the driver. A process that has ended does not
// come back: it is not waited for.
func awaitReady(ctx context.Context, c *devcluster.Cluster, clients kit.Clients, all []devcluster.Process) error {
	var missing string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		missing = notReady(ctx, c, clients)
		return missing == "", ended(c, all)
	})
	if err != nil {
		return fmt.Errorf("wait for Moor (%s; see the logs with `moor-dev logs`): %w", cmp.Or(missing, "all is ready"), err)
	}
	return nil
}

// ended is an error if one of the processes does not run: with what it said last.
func ended(c *devcluster.Cluster, all []devcluster.Process) error {
	for _, p := range all {
		if !c.Running(p.Name) {
			return c.Explain(fmt.Errorf("process %s in %s has ended", p.Name, p.Machine), p.Name)
		}
	}
	return nil
}

// notReady says what is still missing; "" if nothing is.
func notReady(ctx context.Context, c *devcluster.Cluster, clients kit.Clients) string {
	for _, name := range c.Nodes() {
		node := &moorv1alpha1.DPUStorageNode{}
		if err := clients.Host.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err.Error()
		}
		switch {
		case node.Status.DPU == nil:
			return "DPU " + node.Spec.DPUName + " has not reported"
		case !node.Status.DPU.SNAPReady:
			return "SNAP on " + node.Spec.DPUName + " does not answer"
		case node.Status.Host == nil:
			return "host " + name + " has not reported"
		}
		csiNode := &storagev1.CSINode{}
		if err := clients.Host.Get(ctx, client.ObjectKey{Name: name}, csiNode); err != nil {
			return err.Error()
		}
		if !registered(csiNode, driver) {
			return "the kubelet of " + name + " does not know driver " + driver
		}
	}
	return ""
}

// registered reports whether a node lists a driver.
func registered(n *storagev1.CSINode, driver string) bool {
	return slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
}
