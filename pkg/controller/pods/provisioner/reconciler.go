// Package provisioner serves PavProvisioners: a CSIDriver for each, one controller that makes and removes
// volumes for its claims, and a status that says whether it works and what there is of it.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
)

// Reconciler serves PavProvisioners.
type Reconciler struct {
	kube.Cluster
	Provisioners *compiled.Store

	// serves runs the controllers of provisioners.
	serves interface {
		serve(ctx context.Context, name string) error
		stop(name string)
	}
}

// Reconcile brings what belongs to a provisioner up to date. Also one that cannot be used any more is
// served: it says so to the claims.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p := &pavv1alpha1.PavProvisioner{}
	found, err := kube.Find(ctx, r.Client, req.NamespacedName, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found {
		r.serves.stop(req.Name)
		r.Provisioners.Forget(req.Name)
		return ctrl.Result{}, nil
	}
	if p.DeletionTimestamp.IsZero() {
		if added, err := kube.AddFinalizer(ctx, r.Client, p, pavv1alpha1.FinalizerProvisioner); added || err != nil {
			return ctrl.Result{}, err
		}
	}
	s, err := r.look(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !p.DeletionTimestamp.IsZero() && holdsUp(s) == "" {
		return r.release(ctx, p, s)
	}
	if s.driver == nil && len(s.errs) == 0 && p.DeletionTimestamp.IsZero() {
		s.driver = csiDriver(p)
		vouch(s.driver, s.revokes)
		if _, err := kube.CreateLive(ctx, r.Client, r.Live, s.driver); err != nil {
			return ctrl.Result{}, err
		}
	}
	if ours(p, s.driver) {
		if _, err := kube.Patch(ctx, r.Client, s.driver, func(d *storagev1.CSIDriver) { vouch(d, s.revokes) }); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.serve(ctx, p, s)
}

// serve has a controller run for a provisioner, and reports what is seen.
func (r *Reconciler) serve(ctx context.Context, p *pavv1alpha1.PavProvisioner, s seen) error {
	if s.driver != nil && !ours(p, s.driver) {
		r.serves.stop(p.Name) // claims of this name are another's
	} else if err := r.serves.serve(ctx, p.Name); err != nil {
		return err
	}
	_, err := kube.PatchStatus(ctx, r.Client, p, func(p *pavv1alpha1.PavProvisioner) { report(p, s) })
	return err
}

// look sees what a pass needs to know, in caches alone.
func (r *Reconciler) look(ctx context.Context, p *pavv1alpha1.PavProvisioner) (seen, error) {
	var s seen
	var volumes moorv1alpha1.PodVolumeList
	var stagings moorv1alpha1.PodStagingList
	var pvs corev1.PersistentVolumeList
	compiled, errs := r.Provisioners.Of(p)
	s.errs, s.revokes = errs, compiled != nil && compiled.Revokes() != ""
	driver := &storagev1.CSIDriver{}
	found, err := kube.Find(ctx, r.Client, client.ObjectKeyFromObject(p), driver)
	if found {
		s.driver = driver
	}
	err = errors.Join(err,
		r.Client.List(ctx, &volumes, client.MatchingFields{index.PodVolumeByProvisioner: p.Name}, client.UnsafeDisableDeepCopy),
		r.Client.List(ctx, &stagings, client.MatchingFields{index.PodStagingByProvisioner: p.Name}, client.UnsafeDisableDeepCopy),
		r.Client.List(ctx, &pvs, client.MatchingFields{index.PersistentVolumeByDriver: p.Name}, client.UnsafeDisableDeepCopy))
	if err != nil {
		return s, fmt.Errorf("see what there is of provisioner %s: %w", p.Name, err)
	}
	s.volumes, s.stagings, s.pvs = volumes.Items, stagings.Items, pvs.Items
	return s, nil
}

// release lets a provisioner go of which nothing is left. Its controller ends first: a volume that was
// asked for at the last moment is seen by what is read after that.
func (r *Reconciler) release(ctx context.Context, p *pavv1alpha1.PavProvisioner, s seen) (ctrl.Result, error) {
	r.serves.stop(p.Name)
	var left moorv1alpha1.PodVolumeList
	if err := r.Live.List(ctx, &left, client.MatchingFields{index.PodVolumeByProvisioner: p.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("see whether there are volumes of provisioner %s: %w", p.Name, err)
	}
	if len(left.Items) > 0 { // the cache shows it soon
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	if ours(p, s.driver) {
		if err := kube.Delete(ctx, r.Client, s.driver); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, kube.RemoveFinalizers(ctx, r.Client, p, pavv1alpha1.FinalizerProvisioner)
}
