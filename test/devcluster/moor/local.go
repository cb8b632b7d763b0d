package moor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

const (
	// localAccount is that of the sidecars of local-vendor --mode driver.
	localAccount = "local-driver"
	// localSocket is where it serves, on its host.
	localSocket = "/var/lib/kubelet/plugins/" + VendorDriver + "/csi.sock"
)

// localHost is the host whose volumes the local driver has: it is a driver of one machine.
func localHost(c cluster) string { return c.Nodes()[0] }

// localProcesses are the local driver and Kubernetes' sidecars beside it, on its host.
func localProcesses(c bed, kubeconfig string) []devcluster.Process {
	if !c.Options().LocalDriver {
		return nil
	}
	host := localHost(c)
	out := []devcluster.Process{process(c, "local-driver", host, "local-vendor", "--mode=driver", "--node-id="+host, "--endpoint=unix://"+localSocket,
		"--plugin-registry=/var/lib/kubelet/plugins_registry", "--max-volumes-per-node=100", "--metrics-bind-address=:9304")}
	for _, name := range []string{provisionerLocal, attacherLocal, resizerLocal, snapshotterLocal} {
		p := c.sidecar(name, localSocket, kubeconfig)
		p.Machine = host
		switch name {
		case snapshotterLocal: // which is built beside Moor's programs
			p.Argv[0] = filepath.Join(c.BinDir(), program(name))
		case provisionerLocal:
			// There is no pod here that could own what it tells.
			p.Argv = append(p.Argv, "--capacity-ownerref-level=-1")
			p.Env = []string{"NAMESPACE=" + kit.LocalNamespace}
		}
		out = append(out, p)
	}
	return out
}

// deployLocal deploys the local driver, if the bed is to have it, and waits until the kubelet of its
// host knows it. It returns the processes that it has started.
func deployLocal(ctx context.Context, c *devcluster.Cluster, b bed, clients kit.Clients) ([]devcluster.Process, error) {
	if !c.Options().LocalDriver {
		return nil, nil
	}
	if err := kit.Apply(ctx, clients.Host, filepath.Join(c.Root(), "deploy", "local"), filepath.Join(c.Root(), "deploy", "local", "snapshots")); err != nil {
		return nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: localHost(b)}}
	label := []byte(`{"metadata": {"labels": {"storage.moor.dev/local-driver": "true"}}}`)
	if err := clients.Host.Patch(ctx, node, client.RawPatch(types.MergePatchType, label)); err != nil {
		return nil, fmt.Errorf("say that %s has the driver: %w", node.Name, err)
	}
	kubeconfig, err := c.WriteKubeconfig(ctx, devcluster.HostCluster, kit.LocalNamespace, localAccount)
	if err != nil {
		return nil, err
	}
	out := localProcesses(b, kubeconfig)
	if err := start(ctx, c, out); err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		node := &storagev1.CSINode{}
		err := clients.Host.Get(ctx, client.ObjectKey{Name: localHost(b)}, node)
		return err == nil && registered(node, VendorDriver), errors.Join(client.IgnoreNotFound(err), ended(c, out))
	})
	if err != nil {
		return nil, fmt.Errorf("wait until the kubelet of %s knows driver %s: %w", localHost(b), VendorDriver, err)
	}
	return out, nil
}
