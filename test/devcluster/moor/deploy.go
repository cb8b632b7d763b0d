// Package moor deploys Moor and its reference vendor on a running test bed:
// CRDs, accounts and rights from the checkout, then every process in the
// machine where it belongs, each with the token of its own account.
package moor

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

// Deploy deploys everything and waits until it works. Doing it again is
// harmless: what runs is left alone.
func Deploy(ctx context.Context, c *devcluster.Cluster, progress io.Writer) error {
	clients, err := kit.Connect(c)
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "applying CRDs, accounts and rights in all clusters")
	if err := applyManifests(ctx, c, clients); err != nil {
		return err
	}
	if err := pairNodes(ctx, c, clients.Host); err != nil {
		return err
	}
	for _, of := range c.DPUClusters() {
		if err := registerVendor(ctx, clients.In(of.Cluster), of.DPUs); err != nil {
			return err
		}
	}
	fmt.Fprintln(progress, "starting Moor's processes")
	configs, err := kubeconfigs(ctx, c)
	if err != nil {
		return err
	}
	b, err := newBed(c)
	if err != nil {
		return err
	}
	all := processes(b, configs)
	if err := start(ctx, c, all); err != nil {
		return err
	}
	pods, err := deployPods(ctx, c, clients, progress)
	if err != nil {
		return err
	}
	local, err := deployLocal(ctx, c, b, clients)
	if err != nil {
		return fmt.Errorf("deploy the local driver: %w", err)
	}
	fmt.Fprintln(progress, "waiting until every DPU reports and every host knows the driver")
	return awaitReady(ctx, c, clients, slices.Concat(all, pods, local))
}

// start starts those processes that do not run.
func start(ctx context.Context, c *devcluster.Cluster, all []devcluster.Process) error {
	for _, p := range all {
		if c.Running(p.Name) {
			continue
		}
		if err := c.Start(ctx, p); err != nil {
			return fmt.Errorf("start %s in %s: %w", p.Name, p.Machine, err)
		}
	}
	return nil
}

func applyManifests(ctx context.Context, c *devcluster.Cluster, clients kit.Clients) error {
	in := func(parts ...string) string { return filepath.Join(append([]string{c.Root()}, parts...)...) }
	mode := in("deploy", "host", "attach-"+strings.ToLower(string(c.Options().AttachMode)))
	snapshots := append(slices.Clone(c.Snapshotter().CRDs), c.Snapshotter().Controller)
	host := append(slices.Clone(snapshots), in("crds", "host"), in("deploy", "host"), mode, in("deploy", "scheduler", "rbac.yaml"), in("deploy", "host", "snapshots"), in("deploy", "host", "power"))
	if err := kit.Apply(ctx, clients.Host, host...); err != nil {
		return fmt.Errorf("host cluster: %w", err)
	}
	for _, of := range c.DPUClusters() {
		dpu := clients.In(of.Cluster)
		if err := kit.Apply(ctx, dpu, append(slices.Clone(snapshots), in("crds", "dpu"), in("deploy", "dpu"), in("deploy", "dpu", "snapshots"))...); err != nil {
			return fmt.Errorf("the %s cluster: %w", of.Cluster, err)
		}
		// Here the vendor has a target, so that a detach is a proof: as the manifest says.
		if err := Revokes(ctx, dpu, true); err != nil {
			return err
		}
	}
	return nil
}

// Revokes has the vendor say in the DPU cluster whether its storage revokes.
func Revokes(ctx context.Context, dpu client.Client, does bool) error {
	o := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: VendorDriver}}
	word := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "%t"}}}`, storagev1alpha1.AnnotationRevokes, does)
	if err := dpu.Patch(ctx, o, client.RawPatch(types.MergePatchType, word)); err != nil {
		return fmt.Errorf("say whether the storage of %s revokes: %w", VendorDriver, err)
	}
	return nil
}

// pairNodes says which DPU sits in which host, and in which of several DPU clusters it is: what
// an installer knows.
func pairNodes(ctx context.Context, c *devcluster.Cluster, host client.Client) error {
	dpus := c.DPUs()
	in := map[string]string{}
	if c.Options().TwoDPUClusters {
		for _, of := range c.DPUClusters() {
			for _, dpu := range of.DPUs {
				in[dpu] = DPUClusterName(of.Cluster)
			}
		}
	}
	for i, name := range c.Nodes() {
		node := &moorv1alpha1.DPUStorageNode{}
		node.Name = name
		node.Spec.DPUName, node.Spec.DPUCluster = dpus[i], in[dpus[i]]
		if err := client.IgnoreAlreadyExists(host.Create(ctx, node)); err != nil {
			return fmt.Errorf("say that %s has DPU %s: %w", name, dpus[i], err)
		}
	}
	return nil
}

// registerVendor says that every DPU has the vendor's driver, as a kubelet says it of
// drivers that register with it: csi-provisioner tells of the room in such places only.
// All are at the same place until one is moved, also where the vendor's storage is
// at none: csi-provisioner does not know its own CSIStorageCapacity again where a
// driver has no such label.
func registerVendor(ctx context.Context, dpu client.Client, dpus []string) error {
	for _, name := range dpus {
		node := &corev1.Node{}
		if err := dpu.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return fmt.Errorf("find the Node of %s: %w", name, err)
		}
		before := node.DeepCopy()
		node.Labels[kit.PlaceKey] = kit.PlaceShared
		if err := dpu.Patch(ctx, node, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("say what storage %s reaches: %w", name, err)
		}
		if err := listVendor(ctx, dpu, node); err != nil {
			return fmt.Errorf("say that %s has driver %s: %w", name, VendorDriver, err)
		}
	}
	return nil
}

// listVendor has the vendor's driver in the CSINode of a DPU, beside the drivers that a kubelet
// lists there.
func listVendor(ctx context.Context, dpu client.Client, node *corev1.Node) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		known := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		_, err := controllerutil.CreateOrUpdate(ctx, dpu, known, func() error {
			withVendor(known, node)
			return nil
		})
		return err
	})
}

// withVendor adds the vendor's driver to a CSINode that lacks it. A kubelet deletes a CSINode that
// its Node does not own.
func withVendor(known *storagev1.CSINode, node *corev1.Node) {
	if len(known.OwnerReferences) == 0 {
		known.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(node, corev1.SchemeGroupVersion.WithKind("Node"))}
	}
	if !registered(known, VendorDriver) {
		known.Spec.Drivers = append(known.Spec.Drivers, storagev1.CSINodeDriver{Name: VendorDriver, NodeID: node.Name, TopologyKeys: []string{kit.PlaceKey}})
	}
}

// hostAccounts and dpuAccounts are the ServiceAccounts of the processes, in the host cluster and
// in each DPU cluster.
var (
	hostAccounts = []string{"snap-host-controller", "snap-csi-plugin-controller", "scheduler-extender"}
	dpuAccounts  = []string{"snap-host-controller", "snap-controller", "snap-external-attacher", "local-vendor-controller"}
)

// nodeAccount is that of the process on each host; its tokens are bound to
// their Nodes.
const nodeAccount = "snap-csi-plugin-node"

// dpuAccount is what each DPU is in its DPU cluster.
const dpuAccount = "snap-node-driver"

// snapshotController is the account of Kubernetes' own snapshot-controller in
// kube-system, in each cluster.
const snapshotController = "snapshot-controller"

// Kubeconfigs are the paths of kubeconfigs by cluster and account; those of
// nodeAccount by the name of the host, and of dpuAccount by that of the DPU.
type Kubeconfigs map[string]map[string]string

func kubeconfigs(ctx context.Context, c *devcluster.Cluster) (Kubeconfigs, error) {
	host, err := accountsOf{c, devcluster.HostCluster}.write(ctx, hostAccounts, nodeAccount, c.Nodes())
	if err != nil {
		return nil, err
	}
	out := Kubeconfigs{devcluster.HostCluster: host}
	for _, of := range c.DPUClusters() {
		out[of.Cluster], err = accountsOf{c, of.Cluster}.write(ctx, dpuAccounts, dpuAccount, of.DPUs)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// accountsOf are the accounts of one cluster.
type accountsOf struct {
	*devcluster.Cluster
	name string
}

// write writes the kubeconfigs of accounts, of the snapshot-controller, and of the one that processes on
// nodes have.
func (c accountsOf) write(ctx context.Context, accounts []string, onNodes string, nodes []string) (map[string]string, error) {
	out := map[string]string{}
	var err error
	for _, account := range accounts {
		if out[account], err = c.WriteKubeconfig(ctx, c.name, kit.Namespace, account); err != nil {
			return nil, err
		}
	}
	if out[snapshotController], err = c.WriteKubeconfig(ctx, c.name, "kube-system", snapshotController); err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if out[node], err = c.WriteNodeKubeconfig(ctx, c.name, kit.Namespace, onNodes, node); err != nil {
			return nil, err
		}
	}
	return out, nil
}
