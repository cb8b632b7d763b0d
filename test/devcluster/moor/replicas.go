package moor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/record"
	"github.com/moor-storage/moor/test/kit"
)

// controller is one that elects a leader, and that a failover goes through.
type controller struct {
	name, cluster, lease string
	// health is the port of its health checks.
	health string
}

// elected are those controllers. snap-external-attacher elects one too, but stands beside the
// vendor's controller, of which the bed has one.
var elected = []controller{
	{"snap-host-controller", devcluster.HostCluster, "snap-host-controller.dpu.nvidia.com", "9107"},
	{"snap-controller", devcluster.DPUCluster, "snap-controller.nvidia.com", "9105"},
}

// electing are their flags then: leases that are shorter than by default.
var electing = []string{
	"--leader-elect", "--leader-election-namespace=" + kit.Namespace,
	"--leader-election-lease-duration=5s", "--leader-election-renew-deadline=3s", "--leader-election-retry-period=500ms",
}

// Elect has each controller that a failover goes through run as two replicas, on hosts, in the
// place of the one that the bed has: those on leader have the leases when it returns, and those
// on standby are ready. undo has all as it was, also if Elect fails; it is never nil.
func Elect(ctx context.Context, c *devcluster.Cluster, leader, standby string) (undo func(context.Context) error, err error) {
	var replaced []devcluster.Process
	undo = func(ctx context.Context) error {
		var failed []error
		for _, usual := range replaced {
			failed = append(failed, single(ctx, c, usual))
		}
		return errors.Join(failed...)
	}
	clients, err := kit.Connect(c)
	if err != nil {
		return undo, err
	}
	for _, of := range elected {
		running, err := record.LoadProcess(of.name)
		if err != nil {
			return undo, fmt.Errorf("find process %s: %w", of.name, err)
		}
		usual := running.Process
		replaced = append(replaced, usual)
		api := clients.Host
		if of.cluster == devcluster.DPUCluster {
			api = clients.DPU
		}
		if err := of.lead(ctx, c, api, replica(usual, leader)); err != nil {
			return undo, fmt.Errorf("have %s lead on %s: %w", of.name, leader, err)
		}
		if err := of.wait(ctx, c, replica(usual, standby)); err != nil {
			return undo, fmt.Errorf("have %s wait on %s: %w", of.name, standby, err)
		}
	}
	return undo, nil
}

// Roll restarts the replicas that Elect has made one after the other, those on leader first, as
// the rolling update of a Deployment does: each is asked to end, and is ready again before the next.
func Roll(ctx context.Context, c *devcluster.Cluster, leader, standby string) error {
	for _, host := range []string{leader, standby} {
		for _, of := range elected {
			if err := c.Restart(ctx, of.name+"-"+host); err != nil {
				return err
			}
			if err := of.ready(ctx, c, host); err != nil {
				return fmt.Errorf("wait until %s on %s is ready again: %w", of.name, host, err)
			}
		}
	}
	return nil
}

// replica is the process on a host.
func replica(of devcluster.Process, host string) devcluster.Process {
	return devcluster.Process{Name: of.Name + "-" + host, Machine: host, Env: of.Env, Argv: append(slices.Clone(of.Argv), electing...)}
}

// single ends the replicas, and runs the process that the bed has.
func single(ctx context.Context, c *devcluster.Cluster, usual devcluster.Process) error {
	var failed []error
	for _, host := range c.Nodes() {
		failed = append(failed, c.Remove(usual.Name+"-"+host))
	}
	if !c.Running(usual.Name) {
		failed = append(failed, c.Start(ctx, usual))
	}
	return errors.Join(failed...)
}

// lead runs a replica in the place of the process that the bed has, until it has the lease.
func (of controller) lead(ctx context.Context, c *devcluster.Cluster, api client.Client, replica devcluster.Process) error {
	if err := c.Remove(of.name); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kit.Namespace, Name: of.lease}}
	if err := client.IgnoreNotFound(api.Delete(ctx, lease)); err != nil {
		return fmt.Errorf("delete what is left of its lease: %w", err)
	}
	if err := c.Start(ctx, replica); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		found, err := kube.Find(ctx, api, client.ObjectKeyFromObject(lease), lease)
		return found && ptr.Deref(lease.Spec.HolderIdentity, "") != "", err
	})
}

// wait runs a replica until it is ready.
func (of controller) wait(ctx context.Context, c *devcluster.Cluster, replica devcluster.Process) error {
	if err := c.Start(ctx, replica); err != nil {
		return err
	}
	return of.ready(ctx, c, replica.Machine)
}

// ready waits until the replica on a host is.
func (of controller) ready(ctx context.Context, c *devcluster.Cluster, host string) error {
	machines, err := c.Machines()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(machines, func(m record.Machine) bool { return m.Name == host })
	if i < 0 {
		return fmt.Errorf("the bed has no machine %s", host)
	}
	return awaitHTTP(ctx, "http://"+machines[i].IP+":"+of.health+"/readyz")
}

// awaitHTTP waits until a GET is answered by 200.
func awaitHTTP(ctx context.Context, url string) error {
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, err
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil // it does not listen yet
		}
		_ = answer.Body.Close() // nothing is written
		return answer.StatusCode == http.StatusOK, nil
	})
}
