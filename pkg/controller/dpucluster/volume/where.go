package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// annSelectedNode is Kubernetes' way of telling csi-provisioner for which node a
// claim is; it heeds it with either volumeBindingMode.
const annSelectedNode = "volume.kubernetes.io/selected-node"

// unreachable is a wait for something that, as things are, will not come: the
// volume cannot be had from where it is to be reached.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

func nowhere(format string, args ...any) error { return unreachable{kube.WaitFor(format, args...)} }

func isUnreachable(err error) bool {
	var u unreachable
	return errors.As(err, &u)
}

// site is what counts when a vendor is to make a volume somewhere.
type site struct {
	driver string
	// allowed is what the vendor's StorageClass allows.
	allowed []corev1.TopologySelectorTerm
	// wanted are the places from one of which it has to be reached, the most
	// preferred first; none: from anywhere.
	wanted []map[string]string
	// source are the places from which that is reached of which it is a copy;
	// none: from everywhere.
	source []map[string]string
}

// choosy reports whether a driver makes a difference between DPUs.
func choosy(dpus []dpu, driver string) bool {
	for _, d := range dpus {
		if len(d.keys[driver]) > 0 {
			return true
		}
	}
	return false
}

// best are the DPUs for which the volume is to be made: of those that the
// vendor can make it for, the ones at the most preferred place. A driver that no
// DPU has registered needs no registration.
func best(dpus []dpu, s site) []dpu {
	registered := false
	for _, d := range dpus {
		_, has := d.keys[s.driver]
		registered = registered || has
	}
	var out []dpu
	least := len(s.wanted)
	for _, d := range dpus {
		_, has := d.keys[s.driver]
		rank := d.atOneOf(s.wanted)
		if has != registered || rank < 0 || !allows(s.allowed, d.node.Labels) || d.atOneOf(s.source) < 0 {
			continue
		}
		if rank < least {
			least, out = rank, nil
		}
		if rank == least {
			out = append(out, d)
		}
	}
	return out
}

// allows reports whether a StorageClass allows volumes for a node.
func allows(terms []corev1.TopologySelectorTerm, labels map[string]string) bool {
	for _, t := range terms {
		all := true
		for _, e := range t.MatchLabelExpressions {
			one := false
			for _, v := range e.Values {
				have, told := labels[e.Key]
				one = one || told && have == v
			}
			all = all && one
		}
		if all {
			return true
		}
	}
	return len(terms) == 0
}

// dpus reads the DPUs. They are not to be changed.
func (r *Reconciler) dpus(ctx context.Context) ([]dpu, error) {
	nodes, known := &corev1.NodeList{}, &storagev1.CSINodeList{}
	if err := r.DPU.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the DPUs: %w", err)
	}
	if err := r.DPU.Client.List(ctx, known, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the drivers of the DPUs: %w", err)
	}
	return dpusOf(nodes.Items, known.Items), nil
}

// site is where a vendor may make the volume by its StorageClass.
func siteOf(v *storagev1alpha1.Volume, class *storagev1.StorageClass, from *origin) site {
	out := site{driver: class.Provisioner, allowed: class.AllowedTopologies, wanted: v.Spec.Request.AccessibleFrom}
	if from != nil {
		out.source = from.places
	}
	return out
}

// able are those of a policy's vendors that can make the volume where it is to
// be reached from: all of them, if that is anywhere.
func (r *Reconciler) able(ctx context.Context, v *storagev1alpha1.Volume, policy *storagev1alpha1.StoragePolicy) ([]string, error) {
	if len(v.Spec.Request.AccessibleFrom) == 0 {
		return policy.Spec.StorageVendors, nil
	}
	dpus, err := r.dpus(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range policy.Spec.StorageVendors {
		_, class, err := r.classOf(ctx, v.Namespace, name, policy)
		if err != nil {
			return nil, err
		}
		if !choosy(dpus, class.Provisioner) || len(best(dpus, siteOf(v, class, nil))) > 0 {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, nowhere("no vendor of StoragePolicy %s makes volumes that are reached from one of the places asked for: %s",
			policy.Name, inWords(v.Spec.Request.AccessibleFrom))
	}
	return out, nil
}

// selected is the DPU for which the vendor is to make the volume; "" if that is
// left to the vendor.
func (r *Reconciler) selected(ctx context.Context, v *storagev1alpha1.Volume, from *origin) (string, error) {
	class := &storagev1.StorageClass{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: v.Spec.Volume.CSIReference.StorageClassName}, class)
	if err != nil || !found || !late(class) && len(v.Spec.Request.AccessibleFrom) == 0 {
		return "", err
	}
	dpus, err := r.dpus(ctx)
	if err != nil {
		return "", err
	}
	s := siteOf(v, class, from)
	if !late(class) && !choosy(dpus, s.driver) {
		return "", nil
	}
	fit := best(dpus, s)
	switch {
	case len(fit) > 0:
		return fit[r.IntN(len(fit))].node.Name, nil
	case len(s.wanted)+len(s.source) == 0:
		return "", nil
	}
	return "", nowhere("StorageClass %s makes no volume that is reached from one of the places asked for: %s", class.Name, inWords(s.wanted))
}

// late reports whether the class makes no volume before a node is selected.
func late(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// fits refuses what the vendor has made if it is not reached from where it is to
// be: nobody has it yet, and nobody shall.
func fits(v *storagev1alpha1.Volume, pv *corev1.PersistentVolume, dpus []dpu) error {
	if len(v.Spec.Request.AccessibleFrom) == 0 {
		return nil
	}
	for _, d := range dpus {
		if d.atOneOf(v.Spec.Request.AccessibleFrom) < 0 {
			continue
		}
		if ok, err := d.reaches(pv.Spec.NodeAffinity); ok || err != nil {
			return err
		}
	}
	return nowhere("the vendor made PersistentVolume %s where it is reached from none of the places asked for: %s; delete this volume",
		pv.Name, inWords(v.Spec.Request.AccessibleFrom))
}

// relabelled lets pass what changes where DPUs are, or which drivers they have.
var relabelled = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || !sameDrivers(e.ObjectOld, e.ObjectNew)
}}

func sameDrivers(a, b client.Object) bool {
	was, ok := a.(*storagev1.CSINode)
	is, same := b.(*storagev1.CSINode)
	return !ok || !same || equality.Semantic.DeepEqual(was.Spec.Drivers, is.Spec.Drivers)
}

// ofDPU finds the volumes that could not be had where they are to be reached.
func (r *Reconciler) ofDPU(ctx context.Context, o client.Object) []reconcile.Request {
	list := &storagev1alpha1.VolumeList{}
	err := r.DPU.Client.List(ctx, list, client.MatchingFields{index.VolumeUnreachable: "true"}, client.UnsafeDisableDeepCopy)
	if err != nil {
		log.FromContext(ctx).Error(err, "find the volumes that wait for a DPU", "dpu", o.GetName())
		return nil
	}
	out := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		out[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return out
}
