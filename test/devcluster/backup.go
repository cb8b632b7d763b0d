package devcluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/etcdkv"
)

// Backup is what etcd held of one cluster. Events are not in it, which etcd forgets by
// itself.
type Backup struct {
	cluster string
	entries []etcdkv.Entry
}

// Backup reads all that etcd holds of a cluster.
func (c *Cluster) Backup(ctx context.Context, cluster string) (*Backup, error) {
	all, err := c.store().All(ctx, prefixOf(cluster))
	if err != nil {
		return nil, fmt.Errorf("back the %s cluster up: %w", cluster, err)
	}
	events := []byte(prefixOf(cluster) + "events/")
	all = slices.DeleteFunc(all, func(e etcdkv.Entry) bool { return bytes.HasPrefix(e.Key, events) })
	return &Backup{cluster, all}, nil
}

// Without is the backup without one object, as after `etcdctl del` before the API servers
// start: path is its key under the prefix of the API server.
func (b *Backup) Without(path string) *Backup {
	key := []byte(prefixOf(b.cluster) + path)
	return &Backup{b.cluster, slices.DeleteFunc(slices.Clone(b.entries), func(e etcdkv.Entry) bool { return bytes.Equal(e.Key, key) })}
}

// Restore makes the clusters what they were at the time of their backups: it ends their API
// servers, replaces what etcd holds, starts the API servers, and returns when they are ready.
// Controller managers and scheduler are started anew, as Kubernetes wants it after a restore:
// what they remember is of objects that are no more.
// Revisions go on and do not come again, as after `etcdutl snapshot restore --bump-revision
// --mark-compacted`; the other cluster, which the same etcd serves, is not touched.
func (c *Cluster) Restore(ctx context.Context, backups ...*Backup) error {
	for _, b := range backups {
		if err := c.Kill(c.plane(b.cluster).apiserver(), syscall.SIGKILL); err != nil {
			return fmt.Errorf("restore the %s cluster: %w", b.cluster, err)
		}
	}
	for _, b := range backups {
		if err := c.replace(ctx, b); err != nil {
			return fmt.Errorf("restore the %s cluster: %w", b.cluster, err)
		}
	}
	for _, b := range backups {
		if err := c.restartPlane(ctx, c.plane(b.cluster)); err != nil {
			return fmt.Errorf("restore the %s cluster: %w", b.cluster, err)
		}
	}
	return nil
}

// restartPlane starts an API server that has ended, and then what stands beside it anew.
func (c *Cluster) restartPlane(ctx context.Context, p plane) error {
	if err := c.Restart(ctx, p.apiserver()); err != nil {
		return err
	}
	if err := c.awaitAPI(ctx, p); err != nil {
		return err
	}
	if err := c.Restart(ctx, p.controllerManager()); err != nil || len(p.kubelets) == 0 {
		return err
	}
	return c.Restart(ctx, p.scheduler())
}

// replace puts what a backup holds in the place of what etcd does.
func (c *Cluster) replace(ctx context.Context, b *Backup) error {
	if err := c.store().Delete(ctx, prefixOf(b.cluster)); err != nil {
		return err
	}
	return c.store().Put(ctx, b.entries)
}

// plane is the control plane of the cluster with that name, which must be one of the bed.
func (c *Cluster) plane(cluster string) plane {
	planes := c.planes()
	return planes[slices.IndexFunc(planes, func(p plane) bool { return p.name == cluster })]
}

// prefixOf is where an API server keeps what is its.
func prefixOf(cluster string) string { return "/" + cluster + "/" }

// store is the bed's etcd, which listens in the hub alone.
func (c *Cluster) store() *etcdkv.Client {
	return &etcdkv.Client{URL: "http://" + etcdAddress, HTTP: &http.Client{Transport: &http.Transport{
		DialContext: dialInHub, DisableKeepAlives: true,
	}}}
}

// dialInHub connects to an address as it is seen in the hub.
func dialInHub(ctx context.Context, network, address string) (net.Conn, error) {
	type answer struct {
		conn net.Conn
		err  error
	}
	got := make(chan answer)
	go func() {
		// The thread is in another network from here on: it stays locked, so that it ends with
		// this goroutine and runs no other.
		runtime.LockOSThread()
		err := enterHub()
		if err != nil {
			got <- answer{err: err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		got <- answer{conn, err}
	}()
	a := <-got
	return a.conn, a.err
}

// enterHub moves the calling thread into the network of the hub.
func enterHub() error {
	hub, err := running(layout.Hub)
	if err != nil {
		return err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", hub.Identity.PID))
	if err != nil {
		return fmt.Errorf("enter the network of the hub: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of the hub: %w", err)
	}
	return nil
}
