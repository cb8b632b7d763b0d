package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/placement"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// passing are the taints that come and go with a node's health, or with its
// maintenance: a node with one gets no new replica, but keeps those it has
// until patience ends.
var passing = map[string]bool{
	corev1.TaintNodeNotReady: true, corev1.TaintNodeUnreachable: true, corev1.TaintNodeUnschedulable: true,
	corev1.TaintNodeMemoryPressure: true, corev1.TaintNodeDiskPressure: true, corev1.TaintNodePIDPressure: true,
	corev1.TaintNodeNetworkUnavailable: true, corev1.TaintNodeOutOfService: true,
}

// nodes are the nodes of one question.
type nodes struct {
	list []placement.Node
	// kube are the cache's own: they must not be changed.
	kube map[string]*corev1.Node
	// again is when the first node in trouble has had its time; 0 if none.
	again time.Duration
}

// nodes reads the nodes named, or all if none is.
func (r *Reconciler) nodes(ctx context.Context, s *pass, u use, names []string) (nodes, error) {
	out := nodes{kube: map[string]*corev1.Node{}}
	dpus, err := r.dpus(ctx, names)
	if err != nil {
		return out, err
	}
	pending := map[string]int{}
	if names == nil {
		if pending, err = r.pending(ctx, s); err != nil {
			return out, err
		}
	}
	kind := functionOf(s.primary().Spec.FunctionTypeConfig)
	known := vendors{s.name: s.vendor()}
	for i := range dpus {
		dpu, node := &dpus[i], &corev1.Node{}
		found, err := kube.Find(ctx, r.Host.Client, client.ObjectKey{Name: dpu.Name}, node, client.UnsafeDisableDeepCopy)
		if err != nil {
			return out, err
		}
		if !found {
			continue
		}
		out.kube[dpu.Name] = node
		n, left := judge(dpu, node, r.Clock.Now(), r.Patience)
		n.Domain = node.Labels[cmp.Or(u.topology, r.TopologyKey)]
		n.Unsuited = u.unsuited(node)
		s.reach(&n, dpu)
		if n.Lost, err = r.lost(ctx, dpu, known); err != nil {
			return out, err
		}
		if n.Free[kind] != placement.Unknown {
			n.Free[kind] = max(0, n.Free[kind]-pending[n.Name]-u.shortOf(n.Name, kind))
		}
		if s.taken(n.Name) {
			n.Doubt = "it has an attachment of the volume already"
		}
		if left > 0 && (out.again == 0 || left < out.again) && s.stands(n.Name) {
			out.again = left
		}
		out.list = append(out.list, n)
	}
	return out, nil
}

// dpus reads the DPUStorageNodes named that exist, or all. They are not to be
// changed.
func (r *Reconciler) dpus(ctx context.Context, names []string) ([]moorv1alpha1.DPUStorageNode, error) {
	var list moorv1alpha1.DPUStorageNodeList
	if names == nil {
		if err := r.Host.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list the nodes with DPUs: %w", err)
		}
		return list.Items, nil
	}
	for _, name := range names {
		var one moorv1alpha1.DPUStorageNode
		found, err := kube.Find(ctx, r.Host.Client, client.ObjectKey{Name: name}, &one, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, err
		}
		if found {
			list.Items = append(list.Items, one)
		}
	}
	return list.Items, nil
}

// pending counts by node the attachments that are to have a function of the
// volume's kind and have none yet: the DPU still counts it as free.
func (r *Reconciler) pending(ctx context.Context, s *pass) (map[string]int, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	waiting := client.MatchingFields{index.DPUVolumeAttachmentWithoutFunction: "true"}
	if err := r.Host.Client.List(ctx, &list, client.InNamespace(r.Namespace), waiting, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the attachments without a function: %w", err)
	}
	kind, out := functionOf(s.primary().Spec.FunctionTypeConfig), map[string]int{}
	for i := range list.Items {
		a := &list.Items[i]
		if a.Spec.DPUVolumeName != s.name && functionOf(a.Spec.FunctionTypeConfig) == kind {
			out[a.Spec.DPUNodeName]++
		}
	}
	return out, nil
}

// taken reports whether a node has an attachment that is not one of our
// standing replicas: its name is taken.
func (s *pass) taken(node string) bool {
	return slices.ContainsFunc(s.attachments, func(a *storagev1alpha1.DPUVolumeAttachment) bool {
		return a.Spec.DPUNodeName == node && (!isOurs(a) || !a.DeletionTimestamp.IsZero())
	})
}

// reach judges a node by whether its DPU reaches the volume.
func (s *pass) reach(n *placement.Node, dpu *moorv1alpha1.DPUStorageNode) {
	if s.volume.Status.State == nil || s.volume.Status.State.VolumeInfo == nil {
		return
	}
	places := s.volume.Status.State.VolumeInfo.AccessibleTopology
	switch provisioner.ReachFrom(dpu.Status.Topology, places) {
	case provisioner.Elsewhere:
		n.NoDPU = cmp.Or(n.NoDPU, fmt.Sprintf("its DPU does not reach the volume: it is at %v", dpu.Status.Topology))
	case provisioner.Unclear:
		n.Doubt = cmp.Or(n.Doubt, fmt.Sprintf("it is not known whether its DPU reaches the volume: it is at %v", dpu.Status.Topology))
	case provisioner.Reached:
	}
}

// vendors are those of volumes by their names, each looked up once; "" if not known.
type vendors map[string]string

// lost are the lost paths that a DPU tells of, with the vendors of their volumes; nil if
// there are none. Its messages are left out: the words go to the status of each volume
// that misses a replica, and are to be written once.
func (r *Reconciler) lost(ctx context.Context, dpu *moorv1alpha1.DPUStorageNode, known vendors) (*placement.Lost, error) {
	names := lostVolumes(dpu)
	if len(names) == 0 {
		return nil, nil
	}
	out := &placement.Lost{DPU: dpu.Spec.DPUName, All: dpu.Status.DPU.AllPathsLost}
	for _, name := range names {
		vendor, ok := known[name]
		if !ok {
			volume := &storagev1alpha1.DPUVolume{}
			key := client.ObjectKey{Namespace: r.Namespace, Name: name}
			if _, err := kube.Find(ctx, r.Host.Client, key, volume, client.UnsafeDisableDeepCopy); err != nil {
				return nil, err
			}
			vendor = vendorOf(volume)
			known[name] = vendor
		}
		out.Paths = append(out.Paths, placement.LostPath{Volume: name, Vendor: vendor})
	}
	return out, nil
}

// lostVolumes are the volumes whose paths a DPU tells are lost, ordered by name: since
// when, and by what that is known, is of no matter to replicas.
func lostVolumes(n *moorv1alpha1.DPUStorageNode) []string {
	var out []string
	for _, l := range n.Status.LostPaths() {
		out = append(out, l.Volume)
	}
	slices.Sort(out)
	return out
}

// regained reports whether a path that was lost is so no more.
func regained(was, is *moorv1alpha1.DPUStorageNode) bool {
	if was.Status.DPU != nil && was.Status.DPU.AllPathsLost && (is.Status.DPU == nil || !is.Status.DPU.AllPathsLost) {
		return true
	}
	return slices.ContainsFunc(was.Status.LostPaths(), func(l moorv1alpha1.LostPath) bool {
		return is.Status.LostPath(l.Volume) == nil
	})
}

func (s *pass) stands(node string) bool {
	return slices.ContainsFunc(s.standing(), func(a *storagev1alpha1.DPUVolumeAttachment) bool { return a.Spec.DPUNodeName == node })
}

// judge says what a node is good for. What speaks against it is a doubt at
// first, which only keeps new replicas away, and trouble once it has lasted for
// patience; left is how long that is from now, 0 if it is not to be expected.
func judge(dpu *moorv1alpha1.DPUStorageNode, node *corev1.Node, now time.Time, patience time.Duration) (n placement.Node, left time.Duration) {
	n = placement.Node{Name: dpu.Name, Free: placement.UnknownFree()}
	switch {
	case !dpu.DeletionTimestamp.IsZero():
		n.NoDPU = "its DPUStorageNode is being deleted"
	case dpu.Spec.DPUName == "":
		n.NoDPU = "spec.dpuName of its DPUStorageNode is empty"
	}
	if state := dpu.Status.DPU; state != nil {
		count(&n.Free, state.Functions)
	}
	for _, c := range complaints(dpu, node) {
		n.Doubt = cmp.Or(n.Doubt, c.message)
		if c.since.IsZero() {
			continue
		}
		if rest := patience - now.Sub(c.since); rest > 0 {
			if left == 0 || rest < left {
				left = rest
			}
			continue
		}
		n.Trouble = cmp.Or(n.Trouble, c.message)
	}
	return n, left
}

// complaint is what speaks against a node, and since when; zero: not known.
type complaint struct {
	message string
	since   time.Time
}

func complaints(dpu *moorv1alpha1.DPUStorageNode, node *corev1.Node) []complaint {
	return append(ofDPU(dpu), ofKubelet(node)...)
}

// ofDPU is what speaks against a node by its DPUStorageNode.
func ofDPU(dpu *moorv1alpha1.DPUStorageNode) []complaint {
	var out []complaint
	if words := dpu.Spec.Draining(); words != "" { // no trouble, however long it takes: what is there stays
		out = append(out, complaint{message: words})
	}
	for _, kind := range []string{moorv1alpha1.ConditionDPUAlive, moorv1alpha1.ConditionHostAlive} {
		c := meta.FindStatusCondition(dpu.Status.Conditions, kind)
		switch {
		case c == nil || c.Status == metav1.ConditionTrue:
		case c.Status == metav1.ConditionFalse:
			out = append(out, complaint{fmt.Sprintf("%s is False (%s)", kind, c.Reason), c.LastTransitionTime.Time})
		default:
			out = append(out, complaint{message: fmt.Sprintf("%s is not known (%s)", kind, c.Reason)})
		}
	}
	switch state := dpu.Status.DPU; {
	case state == nil:
		out = append(out, complaint{message: "its DPU has never reported"})
	case !state.SNAPReady:
		out = append(out, complaint{message: "the SNAP service of its DPU does not answer"})
	}
	return out
}

// ofKubelet is what speaks against a node by its Node.
func ofKubelet(node *corev1.Node) []complaint {
	var out []complaint
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			out = append(out, complaint{fmt.Sprintf("the node is not ready (%s)", c.Reason), c.LastTransitionTime.Time})
		}
	}
	for _, t := range node.Spec.Taints {
		if passing[t.Key] {
			c := complaint{message: "it has the taint " + t.Key}
			if t.TimeAdded != nil {
				c.since = t.TimeAdded.Time
			}
			out = append(out, c)
		}
	}
	if node.Spec.Unschedulable {
		out = append(out, complaint{message: "it is cordoned"})
	}
	return out
}

func count(free *placement.Free, functions []moorv1alpha1.FunctionCount) {
	for _, f := range functions {
		switch storagev1alpha1.FunctionType(f.Type) {
		case storagev1alpha1.FunctionTypePF:
			free[placement.PF] = int(max(0, f.Free))
		case storagev1alpha1.FunctionTypeVF:
			free[placement.VF] = int(max(0, f.Free))
		}
	}
}
