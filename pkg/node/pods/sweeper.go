package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/pods/endpoint"
)

// sweeper finds what is left of what is gone: directories whose pods, or stagings, went while no agent ran,
// and stagings for pods that the kubelet has forgotten.
type sweeper struct{ *Agent }

// Start looks at once, and then from time to time, until ctx ends.
func (s sweeper) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("sweeper")
	ticker := s.clock.NewTicker(s.o.Look)
	defer ticker.Stop()
	for {
		if err := s.sweep(ctrl.LoggerInto(ctx, log)); err != nil && ctx.Err() == nil {
			log.Error(err, "look for what helper pods have left behind")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (s sweeper) sweep(ctx context.Context) error {
	directories, removed, err := s.root.Entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, was := range removed {
		_, _, err := s.empty(ctx, was, s.root.Finish)
		errs = append(errs, err)
	}
	known, err := s.known(ctx)
	if err != nil {
		return err
	}
	for _, directory := range directories {
		if !known[s.root.Path(directory)] {
			_, err := s.leftover(ctx, directory)
			errs = append(errs, err)
		}
	}
	if s.vendor != nil {
		errs = append(errs, s.vendor.Sweep(ctx))
	}
	return errors.Join(append(errs, s.forgotten(ctx))...)
}

// known are the directories that the cache knows to be needed: it may show what is over, which is found
// by the next sweep, and spares the API server to be asked for each.
func (s sweeper) known(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	var stagings moorv1alpha1.PodStagingList
	if err := s.cluster.Client.List(ctx, &stagings); err != nil {
		return nil, fmt.Errorf("list what is staged here: %w", err)
	}
	for i := range stagings.Items {
		out[s.root.Path(stagings.Items[i].Status.Directory)] = true
	}
	var all corev1.PodList
	if err := s.cluster.Client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list the pods of this node: %w", err)
	}
	for i := range all.Items {
		for _, v := range all.Items[i].Spec.Volumes {
			if v.HostPath != nil {
				out[v.HostPath.Path] = true
			}
		}
	}
	return out, nil
}

// leftover clears a directory that no pod has and no PodStaging. The API server itself says so: that the
// cache has none is no evidence.
func (a *Agent) leftover(ctx context.Context, directory string) (reconcile.Result, error) {
	there, err := a.root.Has(directory)
	if err != nil || !there {
		return reconcile.Result{}, err
	}
	all, err := a.stagings(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if slices.ContainsFunc(all, func(p moorv1alpha1.PodStaging) bool { return p.Status.Directory == directory || p.Name == directory }) {
		return reconcile.Result{}, nil // it is cleared when that is unstaged
	}
	if used, err := a.used(ctx, directory); err != nil || used {
		return reconcile.Result{}, err
	}
	after, _, err := a.empty(ctx, directory, a.root.Clear)
	return reconcile.Result{RequeueAfter: after}, err
}

// forgotten deletes PodStagings whose pod is gone and that are not seen at their targets: the kubelet does
// not know of them, so it will not have them undone. Such are left when the first call for a volume was
// refused at last.
func (s sweeper) forgotten(ctx context.Context) error {
	var list moorv1alpha1.PodStagingList
	if err := s.cluster.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list what is staged here: %w", err)
	}
	var errs []error
	for i := range list.Items {
		p := &list.Items[i]
		if !p.DeletionTimestamp.IsZero() || p.Spec.NodeName != s.o.Node || !p.Spec.User.IsPod() {
			continue
		}
		gone, err := s.userGone(ctx, p)
		if err == nil && gone {
			ctrl.LoggerFrom(ctx).Info("a volume is staged for a pod that is gone: it is unstaged", "podstaging", p.Name, "pod", p.Spec.User)
			err = kube.Delete(ctx, s.cluster.Client, p)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// userGone reports whether the pod of a PodStaging is gone, and nothing is seen at the target.
func (s sweeper) userGone(ctx context.Context, p *moorv1alpha1.PodStaging) (bool, error) {
	key := client.ObjectKey{Namespace: p.Spec.User.Namespace, Name: p.Spec.User.Name}
	for _, from := range []client.Reader{s.cluster.Client, s.cluster.Live} {
		var pod corev1.Pod
		found, err := kube.Find(ctx, from, key, &pod)
		if err != nil || found && pod.UID == p.Spec.User.UID {
			return false, err
		}
	}
	for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
		if shown, err := s.targets.Shown(endpoint.Target(s.o.Kubelet, p, mode)); err != nil || shown {
			return false, err
		}
	}
	return true, nil
}
