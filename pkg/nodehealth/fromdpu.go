package nodehealth

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// FromDPU puts the DPU's status, as the DPU itself wrote it in its cluster, into
// a node of the host cluster that is to be observed: the mirror there is written
// on changes only, not on each heartbeat. If the DPU's object is gone, the
// mirrored status stays, and its heartbeat no longer changes. The node may end up
// sharing memory with what was read, so neither is changed if that is a cache's own.
func FromDPU(ctx context.Context, dpu client.Reader, node *moorv1alpha1.DPUStorageNode, options ...client.GetOption) error {
	if node.Spec.DPUName == "" {
		return nil
	}
	there := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, dpu, client.ObjectKey{Name: node.Spec.DPUName}, there, options...)
	if found && there.Status.DPU != nil {
		node.Status.DPU = there.Status.DPU
	}
	return err
}

// Shared says that several hosts name one DPU, and what to do; "" if at most one does. It sits
// in one of them: what it shows and what it sees is of that host, and which that is is not known.
// host is the cache of the host cluster, with its indexes.
func Shared(ctx context.Context, host client.Reader, dpu string) (string, error) {
	var nodes moorv1alpha1.DPUStorageNodeList
	if err := host.List(ctx, &nodes, client.MatchingFields{index.DPUStorageNodeByDPU: dpu}, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the hosts that name DPU %s: %w", dpu, err)
	}
	if len(nodes.Items) < 2 {
		return "", nil
	}
	var hosts []string
	for i := range nodes.Items {
		hosts = append(hosts, nodes.Items[i].Name)
	}
	slices.Sort(hosts)
	return fmt.Sprintf("DPUStorageNodes %s all name DPU %s, which sits in one of these hosts alone: correct spec.dpuName of the others, with spec.replaces", strings.Join(hosts, ", "), dpu), nil
}
