package kit

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
)

// PlaceKey is the reference vendor's topology key on the bed; the others are the
// values where it has storage, if the bed has topology.
const (
	PlaceKey = "topology.local.csi.moor.dev/storage"
	// PlaceShared is where all DPUs are until one is moved.
	PlaceShared = "shared"
	// PlaceAnnex is where none is until then.
	PlaceAnnex = "annex"
)

// driver is Moor's in the host cluster.
const driver = "csi.snap.nvidia.com"

// moveTimeout is how long a host may take to be registered anew.
const moveTimeout = 4 * time.Minute

// MoveHost labels a host's DPU as being at another place of the vendor's, and has
// the host's plugin registered anew, without the label of the old place: the
// kubelet takes no other value in the place of one that is there. The pods on the
// host must not have volumes.
func MoveHost(ctx context.Context, bed *devcluster.Cluster, c Clients, host, to string) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	node := &moorv1alpha1.DPUStorageNode{}
	if err := c.Host.Get(ctx, client.ObjectKey{Name: host}, node); err != nil {
		return fmt.Errorf("find the DPU of %s: %w", host, err)
	}
	err := labelPlace(ctx, c.DPU, node.Spec.DPUName, ptr.To(to))
	if err == nil {
		err = until(ctx, c.Host, node, "Moor knows where "+host+" is", func() bool {
			return node.Status.Topology[PlaceKey] == to && node.Status.Topology[moorv1alpha1.TopologyDPU] == node.Spec.DPUName
		})
	}
	if err == nil {
		err = labelPlace(ctx, c.Host, host, nil)
	}
	if err == nil {
		err = bed.Kill("snap-csi-plugin-"+host, syscall.SIGKILL)
	}
	if err == nil {
		err = bed.Restart(ctx, "snap-csi-plugin-"+host)
	}
	if err != nil {
		return fmt.Errorf("move %s to place %s: %w", host, to, err)
	}
	return registered(ctx, c.Host, host, to)
}

// registered waits until the kubelet of a host has told where the host is.
func registered(ctx context.Context, c client.Client, host, place string) error {
	node, known := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}}, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: host}}
	err := until(ctx, c, node, "the kubelet has labeled "+host, func() bool { return node.Labels[PlaceKey] == place })
	if err != nil {
		return err
	}
	return until(ctx, c, known, "the driver is registered on "+host, func() bool {
		return slices.ContainsFunc(known.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
			return d.Name == driver && slices.Contains(d.TopologyKeys, PlaceKey) && slices.Contains(d.TopologyKeys, moorv1alpha1.TopologyDPU)
		})
	})
}

// until reads o anew until ok says that it is so.
func until(ctx context.Context, c client.Client, o client.Object, what string, ok func() bool) error {
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, err
		}
		return ok(), nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

// labelPlace says at which place a Node is, or takes the label away.
func labelPlace(ctx context.Context, c client.Client, name string, place *string) error {
	text := "null"
	if place != nil {
		text = fmt.Sprintf("%q", *place)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, PlaceKey, text))
	if err := c.Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("label Node %s: %w", name, err)
	}
	return nil
}
