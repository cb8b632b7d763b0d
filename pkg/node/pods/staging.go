package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/pods/endpoint"
	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// stagings clears the directories of PodStagings whose pods are gone, and shows volumes anew that were
// staged again.
type stagings struct{ *Agent }

func (a *Agent) setupStagings(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("podstagingnode").
		For(&moorv1alpha1.PodStaging{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofHelper), builder.WithPredicates(kube.Removed)).
		Complete(kube.Retrying(stagings{a}))
}

// ofHelper is the PodStaging that a pod works for.
func ofHelper(_ context.Context, o client.Object) []reconcile.Request {
	h, ours := helperOf(o.(*corev1.Pod))
	if !ours || h.kind != kindStaging {
		return nil
	}
	return []reconcile.Request{kube.RequestFor("", h.name)}
}

// Reconcile looks at one PodStaging of this node.
func (r stagings) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var s moorv1alpha1.PodStaging
	found, err := kube.Find(ctx, r.cluster.Client, req.NamespacedName, &s)
	if err != nil || !found || s.Spec.NodeName != r.o.Node {
		return reconcile.Result{}, err // what one that is gone has left is found by the sweeper
	}
	if r.shownAnew(&s) {
		err := r.renew(ctx, &s)
		if errors.Is(err, provisioner.ErrBusy) { // by a call of the kubelet for the target
			return reconcile.Result{RequeueAfter: time.Second}, nil
		}
		return reconcile.Result{}, err
	}
	if !clears(&s) {
		return reconcile.Result{}, nil
	}
	// What is cleared is decided by what the API server says now.
	var live moorv1alpha1.PodStaging
	found, err = kube.Find(ctx, r.cluster.Live, req.NamespacedName, &live)
	if err != nil || !found || live.UID != s.UID || !clears(&live) {
		return reconcile.Result{}, err
	}
	return r.clear(ctx, &live)
}

// clearing are the phases in which nothing of /pav is needed once no pod has it. In the others the pod may
// be gone and its volume still be in use.
var clearing = []moorv1alpha1.PodStagingPhase{
	moorv1alpha1.PodStagingBroken, moorv1alpha1.PodStagingReverting, moorv1alpha1.PodStagingFailed,
	moorv1alpha1.PodStagingUnstaging, moorv1alpha1.PodStagingUnstaged,
}

// clears reports whether a PodStaging waits for its directory to be cleared. While a pod is recorded that
// was not seen yet, it is about to be made.
func clears(s *moorv1alpha1.PodStaging) bool {
	if !slices.Contains(clearing, s.Status.Phase) {
		return false
	}
	pod, report := s.Status.Pod, s.Status.Report
	if pod != nil && pod.UID == "" {
		return false
	}
	return report == nil || !report.Cleared || pod != nil && pod.UID != report.PodUID
}

// clear clears the directory if no pod has it, and says so.
func (r stagings) clear(ctx context.Context, s *moorv1alpha1.PodStaging) (reconcile.Result, error) {
	if s.Status.Directory != "" { // it is recorded before the first pod is made
		if done, after, err := r.cleared(ctx, s); err != nil || !done {
			return reconcile.Result{RequeueAfter: after}, err
		}
	}
	_, err := kube.PatchStatusExact(ctx, r.cluster.Client, s, func(s *moorv1alpha1.PodStaging) {
		was := s.Status.Report
		if was == nil || s.Status.Pod != nil && s.Status.Pod.UID != was.PodUID {
			was = &moorv1alpha1.StagingReport{}
			if s.Status.Pod != nil {
				was.PodUID = s.Status.Pod.UID
			}
		}
		was.Cleared = true
		s.Status.Report = was
	})
	return reconcile.Result{}, err
}

// cleared clears the directory, if no pod has it: done says whether it is. A pod that has it starts the
// next pass by its end.
func (r stagings) cleared(ctx context.Context, s *moorv1alpha1.PodStaging) (done bool, after time.Duration, err error) {
	used, err := r.used(ctx, s.Status.Directory)
	if err != nil || used {
		return false, 0, err
	}
	after, detached, err := r.empty(ctx, s.Status.Directory, r.root.Clear)
	if len(detached) > 0 {
		r.events.Eventf(s, corev1.EventTypeWarning, "UnmountedLazily", "%s was still in use after %s and was taken out of sight: the kernel ends it when its last user goes", strings.Join(detached, ", "), r.o.Patience)
	}
	return err == nil && after == 0, after, err
}

// empty clears a directory. Mounts in use are given some time, and then unmounted lazily; after is when
// to try again. It returns what was unmounted so.
func (a *Agent) empty(ctx context.Context, directory string, how func(ctx context.Context, directory string, lazily bool) ([]string, error)) (after time.Duration, detached []string, err error) {
	now := a.clock.Now()
	a.mu.Lock()
	since, waits := a.busy[directory]
	a.mu.Unlock()
	lazily := waits && now.Sub(since) >= a.o.Patience
	detached, err = how(ctx, directory, lazily)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case errors.Is(err, pavdir.ErrBusy) && !lazily:
		if !waits {
			a.busy[directory], since = now, now
		}
		ctrl.LoggerFrom(ctx).Info("a mount of a helper pod is in use", "reason", err.Error())
		return max(time.Second, min(a.o.Patience-now.Sub(since), a.o.Patience/4)), detached, nil
	case err != nil:
		return 0, detached, err
	}
	delete(a.busy, directory)
	result := clearedPlainly
	if len(detached) > 0 {
		result = clearedLazily
		ctrl.LoggerFrom(ctx).Info("mounts of a helper pod were unmounted lazily: processes still used them", "mounts", detached)
	}
	a.counts.cleared.WithLabelValues(result).Inc()
	return 0, detached, nil
}

// shownAnew reports whether the volume of a PodStaging has to be seen at its target. That of a DPU is not:
// the next call of snap-node-driver makes its device anew.
func (r stagings) shownAnew(s *moorv1alpha1.PodStaging) bool {
	return s.Spec.User.IsPod() && s.Status.Phase == moorv1alpha1.PodStagingStaged && s.DeletionTimestamp.IsZero() &&
		s.Status.Directory != "" && s.Status.Report != nil && s.Status.Report.VolumeMode != "" && s.Status.Report.BootID == r.o.Boot
}

// renew shows the volume at the target if another is seen there: the one that was there before the staging
// pod died.
func (r stagings) renew(ctx context.Context, s *moorv1alpha1.PodStaging) error {
	target := endpoint.Target(r.o.Kubelet, s, s.Status.Report.VolumeMode)
	changed, err := r.targets.Renew(show.Want{Directory: s.Status.Directory, Target: target, Mode: s.Status.Report.VolumeMode, ReadOnly: s.Spec.ReadOnly})
	if err != nil {
		return fmt.Errorf("show the volume anew at %s: %w", target, err)
	}
	if changed {
		r.counts.renewed.Inc()
		r.events.Eventf(s, corev1.EventTypeNormal, "ShownAnew", "the volume that was staged again is seen at %s; what has opened the one before has to open it anew", target)
		ctrl.LoggerFrom(ctx).Info("a volume was shown anew", "target", target)
	}
	return nil
}
