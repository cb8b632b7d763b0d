package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/pkg/placement"
)

// wordsAtMost is how many nodes a message names.
const wordsAtMost = 3

// place is the plan for a volume with a primary.
func (r *Reconciler) place(ctx context.Context, s *pass, want int) (plan, error) {
	use, err := r.use(ctx, s)
	if err != nil {
		return plan{}, err
	}
	request := s.request(want)
	request.Reserve, request.Group, request.Companions = r.Reserve, use.group, use.companions
	// The nodes that matter while nothing is missing are few.
	known, err := r.nodes(ctx, s, use, append(slices.Clone(request.Present), request.Primary))
	if err != nil {
		return plan{}, err
	}
	chosen := choose(request, known, use)
	hold := s.hold(use)
	if hold != "" || chosen.Missing == 0 && len(chosen.Unsuited) == 0 {
		return s.planned(chosen, hold, known.again), nil
	}
	wait, err := r.yields(ctx, s)
	switch {
	case err != nil:
		return plan{}, err
	case wait > 0:
		return s.planned(chosen, podsFirst, wait), nil
	}
	if known, err = r.nodes(ctx, s, use, nil); err != nil {
		return plan{}, err
	}
	return s.planned(choose(request, known, use), hold, known.again), nil
}

// yieldFor is how long after its primary was attached a volume's replicas may wait for pods
// that are started with volumes, so that one which never starts holds up no replica for long.
const yieldFor = 30 * time.Second

// yields is how long the replicas of a volume wait until they look again, as pods are being
// started with volumes, this one or others; 0 if they need not. Making a replica costs as much
// as an attach, and when a host dies with many volumes, all of them want one just then.
func (r *Reconciler) yields(ctx context.Context, s *pass) (time.Duration, error) {
	own := meta.FindStatusCondition(s.primary().Status.Conditions, storagev1alpha1.ConditionDPUAttached)
	if own == nil || own.Status != metav1.ConditionTrue {
		return 0, nil // not known since when
	}
	left := yieldFor - r.Clock.Now().Sub(own.LastTransitionTime.Time)
	if left <= 0 {
		return 0, nil
	}
	var awaited storagev1alpha1.DPUVolumeAttachmentList
	var starting corev1.PodList
	if err := errors.Join(
		r.Host.Client.List(ctx, &awaited, client.InNamespace(r.Namespace), client.MatchingFields{index.DPUVolumeAttachmentAwaited: "true"}, client.UnsafeDisableDeepCopy),
		r.Host.Client.List(ctx, &starting, client.MatchingFields{index.PodStarting: "true"}, client.UnsafeDisableDeepCopy),
	); err != nil {
		return 0, fmt.Errorf("list what pods wait for: %w", err)
	}
	waiting := len(awaited.Items) + len(starting.Items)
	if waiting == 0 {
		return 0, nil
	}
	// All who wait look again at a rate that does not depend on how many there are.
	return min(left, time.Second+time.Duration(waiting)*50*time.Millisecond), nil
}

func choose(request placement.Request, known nodes, use use) placement.Placement {
	request.Nodes = known.list
	if len(use.pods) > 0 {
		request.Fits = func(node string) (bool, string) { return use.fits(known.kube[node]) }
	}
	return placement.Choose(request)
}

// request is what of the question the attachments tell. Replicas of others
// count as some of those wanted, and so do more primaries as shares.
func (s *pass) request(want int) placement.Request {
	primary := s.primary()
	out := placement.Request{
		Volume:    placement.Volume{ID: s.name, Vendor: s.vendor(), Function: functionOf(primary.Spec.FunctionTypeConfig)},
		Primary:   primary.Spec.DPUNodeName,
		Replicas:  want,
		MaxShares: int(s.volume.Spec.Replication.MaxShares),
	}
	for _, a := range s.attachments {
		switch {
		case a == primary || !a.DeletionTimestamp.IsZero():
		case isOurs(a):
			out.Present = append(out.Present, a.Spec.DPUNodeName)
		case isReplica(a):
			out.Replicas--
			out.MaxShares--
		default:
			out.MaxShares--
		}
	}
	return out
}

// podsFirst is why a volume has no replica yet whose primary is not attached, or while pods
// are being started: one message, so that it is written once.
const podsFirst = "pods that are being started with their volumes go first"

// hold says why no replica may be made now; "" if one may.
func (s *pass) hold(use use) string {
	switch {
	case s.volume.Status.Phase != storagev1alpha1.DPUVolumeBound:
		return "the volume is not bound yet"
	case !attached(s.primary()):
		return podsFirst
	case use.claimed && len(use.pods) == 0:
		return "no pod uses the volume now, so it is not known where one could run"
	}
	return ""
}

// planned turns the choice into a plan. What is on its way out has its share
// until it is gone.
func (s *pass) planned(chosen placement.Placement, hold string, again time.Duration) plan {
	p := plan{again: again}
	for _, a := range s.standing() {
		if a.Spec.DPUNodeName != s.primary().Spec.DPUNodeName && !slices.Contains(chosen.Keep, a.Spec.DPUNodeName) {
			p.remove = append(p.remove, a)
		} else if a.Spec.Warmth != s.warmth() {
			p.warm = append(p.warm, a)
		}
	}
	room := max(0, int(s.volume.Spec.Replication.MaxShares)-len(s.attachments))
	late := 0
	if hold == "" {
		p.add = chosen.Add[:min(room, len(chosen.Add))]
		late = len(chosen.Add) - len(p.add)
	} else {
		late = len(chosen.Add)
	}
	wanted := len(chosen.Keep) + len(chosen.Add) + chosen.Missing
	missing := chosen.Missing + late
	p.state = &storagev1alpha1.ReplicaState{Wanted: int32(wanted), Missing: int32(missing)}
	if wanted > 0 {
		p.state.Placed = fmt.Sprintf("%d/%d", wanted-missing, wanted)
	}
	switch {
	case p.state.Missing == 0 && len(chosen.Unsuited) > 0:
		p.state.Message = "no better node was found: " + refusals(chosen.Unsuited)
	case p.state.Missing == 0:
	case hold != "":
		p.state.Message = hold
	case late > 0:
		p.state.Message = "attachments that are being removed still have their shares of the volume"
	default:
		p.state.Message = refusals(chosen.Refused)
	}
	return p
}

// refusals says why nodes were not taken.
func refusals(refused []placement.Refused) string {
	if len(refused) == 0 {
		return "there are not enough nodes with a DPU"
	}
	var message []string
	for _, r := range refused[:min(len(refused), wordsAtMost)] {
		message = append(message, fmt.Sprintf("node %s: %s", r.Node, r.Reason))
	}
	if more := len(refused) - len(message); more > 0 {
		message = append(message, fmt.Sprintf("and %d nodes more", more))
	}
	return strings.Join(message, "; ")
}

func functionOf(c storagev1alpha1.FunctionTypeConfig) placement.Function {
	switch {
	case c.HotplugFunction:
		return placement.Hotplug
	case c.FunctionType == storagev1alpha1.FunctionTypePF:
		return placement.PF
	}
	return placement.VF
}
