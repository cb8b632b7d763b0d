package staging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// look sees what a pass needs to know. Of a staging at rest it reads caches alone.
func (r *Reconciler) look(ctx context.Context, p *moorv1alpha1.PodStaging) (s seen, strays []corev1.Pod, err error) {
	s.now = r.Clock.Now()
	w := helper.OfStaging(p)
	if s.nodeGone, err = r.Pods.NodeGone(ctx, p.Spec.NodeName); err != nil {
		return s, nil, err
	}
	if p.Status.Pod != nil {
		if s.pod, err = r.Pods.See(ctx, w, p.Status.Pod); err != nil {
			return s, nil, err
		}
	}
	if strays, err = r.Pods.Strays(ctx, w, p.Status.Pod); err != nil {
		return s, nil, err
	}
	if len(strays) == 0 && p.Status.Pod == nil && p.Status.Phase != "" && (!p.DeletionTimestamp.IsZero() || p.Status.Phase == isBroken) {
		if strays, err = r.Pods.LiveStrays(ctx, w, nil); err != nil { // what follows may not have a pod beside it
			return s, nil, err
		}
	}
	strays = slices.DeleteFunc(strays, func(pod corev1.Pod) bool { return stays(p, &pod) })
	s.strays = len(strays)
	if s.provisioner, err = r.Provisioners.Find(ctx, helper.ProvisionerFrom(r.Cluster, retries(p, s.now), p.Status.Pod, s.pod), p.Spec.ProvisionerName); err != nil || p.Status.Phase != isStaging {
		return s, strays, err
	}
	s.expected, err = r.expects(ctx, p)
	return s, strays, err
}

// expects is what the staged volume has to be. If the PersistentVolume is gone, nothing is right.
func (r *Reconciler) expects(ctx context.Context, p *moorv1alpha1.PodStaging) (expected, error) {
	a, err := r.around(ctx, p)
	if err != nil || a.pv == nil {
		return expected{}, err
	}
	out := expected{mode: ptr.Deref(a.pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)}
	if a.volume != nil {
		capacity := a.pv.Spec.Capacity[corev1.ResourceStorage]
		out.bytes = capacity.Value()
	}
	return out, nil
}

// around is what a staging is about, but for its node.
func (r *Reconciler) around(ctx context.Context, p *moorv1alpha1.PodStaging) (surroundings, error) {
	var out surroundings
	pv, claim, volume := &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &moorv1alpha1.PodVolume{}
	found, err := r.find(ctx, types.NamespacedName{Name: p.Spec.VolumeName}, pv)
	if err != nil || !found {
		return out, err
	}
	out.pv = pv
	if ref := pv.Spec.ClaimRef; ref != nil {
		found, err := r.find(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, claim)
		if err != nil {
			return out, err
		}
		if found && claim.UID == ref.UID {
			out.claim = claim
		}
	}
	found, err = kube.Find(ctx, r.Client, types.NamespacedName{Name: p.Spec.VolumeName}, volume)
	if found && volume.Spec.ProvisionerName == p.Spec.ProvisionerName && pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == volume.Status.Handle {
		out.volume = volume
	}
	return out, err
}

// find reads from the cache, and what that does not show, as it may be new, from the API server itself.
func (r *Reconciler) find(ctx context.Context, key types.NamespacedName, o client.Object) (bool, error) {
	found, err := kube.Find(ctx, r.Client, key, o)
	if found || err != nil {
		return found, err
	}
	return kube.Find(ctx, r.Live, key, o)
}

// evaluate evaluates the templates of a phase. What another try may mend is an error; what it would
// not is in the result.
func (r *Reconciler) evaluate(ctx context.Context, p *moorv1alpha1.PodStaging, s seen, phase pods.Phase) (evaluated, error) {
	a, err := r.around(ctx, p)
	if err != nil {
		return evaluated{}, err
	}
	node := &corev1.Node{}
	found, err := kube.Find(ctx, r.Live, types.NamespacedName{Name: p.Spec.NodeName}, node) // no cache keeps whole Nodes
	if err != nil {
		return evaluated{}, err
	}
	if found {
		a.node = node
	}
	claims := &helper.Claims{Reader: r.Client}
	out := evaluated{}
	if phase == pods.Staging {
		out.template, out.err = r.stage(ctx, p, s, a, claims)
	} else {
		out.template, out.err = unstage(ctx, p, s, a, claims)
	}
	return out, errors.Join(claims.Err, passing(out.err))
}

// passes is an error that another try may mend.
type passes struct{ error }

func passing(err error) error {
	var p passes
	if errors.As(err, &p) {
		return p.error
	}
	return nil
}

// stage is the template of the staging pod, if the volume may be staged.
func (r *Reconciler) stage(ctx context.Context, p *moorv1alpha1.PodStaging, s seen, a surroundings, claims pods.Claims) (*corev1.PodTemplateSpec, error) {
	if p.Status.Phase != isStaging {
		others, err := r.others(ctx, p)
		if err != nil {
			return nil, passes{err}
		}
		by := s.provisioner
		by.Deleting = by.Deleting && p.Status.Phase != isBroken // what was there is healed to the end
		if words := refuses(p, a, by, others); words != "" {
			return nil, errors.New(words)
		}
		if err := r.confirmUser(ctx, p, a.claim); err != nil {
			return nil, err
		}
	} else if missing := a.about(p); missing != "" {
		return nil, errors.New(missing)
	}
	if a.volume == nil {
		request, variables, err := pods.OfVolume(a.pv)
		if err == nil {
			_, err = s.provisioner.Provisioner.Validate(ctx, claims, request, variables)
		}
		if err != nil {
			return nil, err
		}
	}
	variables, err := a.variables(p)
	if err != nil {
		return nil, err
	}
	return s.provisioner.Provisioner.Stage(ctx, claims, variables)
}

// unstage is the template of the unstaging pod. If what it is about is gone, there has to be none.
func unstage(ctx context.Context, p *moorv1alpha1.PodStaging, s seen, a surroundings, claims pods.Claims) (*corev1.PodTemplateSpec, error) {
	if a.pv != nil && a.claim == nil {
		a.claim = pods.ClaimOf(a.pv)
	}
	if missing := a.about(p); missing != "" {
		if t, err := s.provisioner.Provisioner.Unstage(ctx, claims, pods.Context{}); t == nil && err == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("which pod unstages the volume is not known: %s", missing)
	}
	variables, err := a.variables(p)
	if err != nil {
		return nil, err
	}
	return s.provisioner.Provisioner.Unstage(ctx, claims, variables)
}

// others are the other stagings of a volume that have begun, those included that this process has let
// begin and whose beginning the cache does not show yet.
func (r *Reconciler) others(ctx context.Context, p *moorv1alpha1.PodStaging) ([]moorv1alpha1.PodStaging, error) {
	var all moorv1alpha1.PodStagingList
	if err := r.Client.List(ctx, &all, client.MatchingFields{index.PodStagingByVolume: p.Spec.VolumeName}); err != nil {
		return nil, fmt.Errorf("list where volume %s is staged: %w", p.Spec.VolumeName, err)
	}
	var out []moorv1alpha1.PodStaging
	for i := range all.Items {
		o := &all.Items[i]
		_, begun := r.begun.Get(o.UID, r.Clock.Now())
		if o.UID != p.UID && (holds(o) || o.Status.Phase == "" && begun > 0) {
			out = append(out, *o)
		}
	}
	return out, nil
}

// marked is how long a staging that was let begin counts as one that has, though the cache does
// not show it.
const marked = kube.CacheLag + time.Minute
