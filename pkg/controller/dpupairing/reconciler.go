package dpupairing

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// Kind is DPF's DPU.
var Kind = schema.GroupVersionKind{Group: "provisioning.dpu.nvidia.com", Version: "v1alpha1", Kind: "DPU"}

const (
	// PreferredAnnotation is DPF's.
	PreferredAnnotation = "storage.nvidia.com/preferred-dpu"
	zeroTrust           = "zero-trust"
	byHost              = "spec.dpuNodeName"
)

// Reconciler names the DPU of one host.
type Reconciler struct {
	// Host has a cache of all DPUStorageNodes, also of those that are in no DPU cluster yet.
	Host kube.Cluster
	// Namespace of DPF's DPUs.
	Namespace string
	// Cluster is the DPUCluster whose DPUs are named, as "namespace/name"; "": there is one alone.
	Cluster string
	// Several: each DPU cluster has a controller of its own, and each host says in which
	// it is.
	Several bool
	// Recorder tells what a person has to decide.
	Recorder record.EventRecorder

	// dpus are those of a host, and clusters those of all DPUs, sorted. Set by Setup.
	dpus     func(ctx context.Context, host string) ([]DPU, error)
	clusters func(ctx context.Context) ([]string, error)
}

// Setup watches DPUs and the DPUStorageNodes that they belong to, where DPUs are
// served and may be listed. Elsewhere it does nothing: spec.dpuName is set by the
// installer. It is looked at once, when the program starts.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	if reason, err := r.missing(ctx); err != nil || reason != "" {
		mgr.GetLogger().Info("the DPUs of hosts are not read from DPF: spec.dpuName of each DPUStorageNode is the installer's", "reason", reason)
		return err
	}
	if err := r.Host.Cache.IndexField(ctx, object(), byHost, func(o client.Object) []string { return []string{dpuOf(o).Host} }); err != nil {
		return fmt.Errorf("index DPUs by host: %w", err)
	}
	r.dpus, r.clusters = r.cached, r.cachedClusters
	nodes := predicate.TypedFuncs[*moorv1alpha1.DPUStorageNode]{UpdateFunc: func(e event.TypedUpdateEvent[*moorv1alpha1.DPUStorageNode]) bool {
		return e.ObjectOld.Spec.DPUName != e.ObjectNew.Spec.DPUName || e.ObjectOld.Spec.DPUCluster != e.ObjectNew.Spec.DPUCluster
	}}
	dpus := predicate.TypedFuncs[*unstructured.Unstructured]{UpdateFunc: func(e event.TypedUpdateEvent[*unstructured.Unstructured]) bool {
		return dpuOf(e.ObjectOld) != dpuOf(e.ObjectNew)
	}}
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpupairing").
		WatchesRawSource(source.Kind(r.Host.Cache, &moorv1alpha1.DPUStorageNode{}, &handler.TypedEnqueueRequestForObject[*moorv1alpha1.DPUStorageNode]{}, nodes)).
		WatchesRawSource(source.Kind(r.Host.Cache, object(), handler.TypedEnqueueRequestsFromMapFunc(host), dpus)).
		Complete(kube.Retrying(r))
}

// missing says why DPUs cannot be read; "" if they can.
func (r *Reconciler) missing(ctx context.Context) (string, error) {
	err := r.Host.Live.List(ctx, list(), client.InNamespace(r.Namespace), client.Limit(1))
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err): //nolint:forbidigo // of a list: it is the kind that is not there
		return "the host cluster does not serve " + Kind.GroupKind().String(), nil
	case apierrors.IsForbidden(err):
		return "they may not be listed, see deploy/host/snap-host-controller-rbac.yaml: " + err.Error(), nil
	case err != nil:
		return "", fmt.Errorf("list DPUs of DPF in namespace %s: %w", r.Namespace, err)
	}
	return "", nil
}

func object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(Kind)
	return o
}

func list() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(Kind.GroupVersion().WithKind(Kind.Kind + "List"))
	return l
}

// dpuOf is what counts of a DPU.
func dpuOf(o client.Object) DPU {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return DPU{}
	}
	text := func(path ...string) string { s, _, _ := unstructured.NestedString(u.Object, path...); return s }
	_, preferred := u.GetAnnotations()[PreferredAnnotation]
	out := DPU{Name: u.GetName(), Host: text("spec", "dpuNodeName"), Preferred: preferred, ZeroTrust: text("status", "deploymentMode") == zeroTrust}
	if name := text("spec", "cluster", "name"); name != "" {
		out.Cluster = text("spec", "cluster", "namespace") + "/" + name
	}
	return out
}

// host is whom a DPU concerns.
func host(_ context.Context, o *unstructured.Unstructured) []reconcile.Request {
	if d := dpuOf(o); d.Host != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: d.Host}}}
	}
	return nil
}

// cached are the DPUs of a host as the cache has them. Those that are being deleted count:
// they are in the host until they are gone.
func (r *Reconciler) cached(ctx context.Context, host string) ([]DPU, error) {
	all := list()
	if err := r.Host.Cache.List(ctx, all, client.InNamespace(r.Namespace), client.MatchingFields{byHost: host}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the DPUs of host %s: %w", host, err)
	}
	var out []DPU
	for i := range all.Items {
		out = append(out, dpuOf(&all.Items[i]))
	}
	return out, nil
}

// cachedClusters are the clusters of all DPUs as the cache has them.
func (r *Reconciler) cachedClusters(ctx context.Context) ([]string, error) {
	all := list()
	if err := r.Host.Cache.List(ctx, all, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the DPUs of DPF: %w", err)
	}
	var out []string
	for i := range all.Items {
		if cluster := dpuOf(&all.Items[i]).Cluster; cluster != "" {
			out = append(out, cluster)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Reconcile names the host's DPU, if none is named. What a person has to decide is told as
// an event of the DPUStorageNode.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	dpus, err := r.dpus(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, r.Host.Client, client.ObjectKey{Name: req.Name}, node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found {
		node = nil
	}
	d, err := r.decide(ctx, req.Name, dpus, node)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case d.create != nil:
		if err := r.Host.Client.Create(ctx, d.create); client.IgnoreAlreadyExists(err) != nil {
			return ctrl.Result{}, fmt.Errorf("make the DPUStorageNode of host %s, which has DPU %s: %w", req.Name, d.create.Spec.DPUName, err)
		}
	case d.name != "":
		// One that was named meanwhile stays.
		_, err := kube.PatchExact(ctx, r.Host.Client, node, func(n *moorv1alpha1.DPUStorageNode) {
			n.Spec.DPUName, n.Spec.DPUCluster = d.name, cmp.Or(d.cluster, n.Spec.DPUCluster)
		})
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("name DPU %s in DPUStorageNode %s: %w", d.name, req.Name, err)
		}
		r.Recorder.Event(node, corev1.EventTypeNormal, moorv1alpha1.ReasonDPUNamed, "DPF has DPU "+d.name+" in this host")
	case d.words != "" && node != nil:
		r.Recorder.Event(node, corev1.EventTypeWarning, moorv1alpha1.ReasonDPUNotNamed, d.words)
	}
	return ctrl.Result{}, nil
}

// decide says what is to be done about a host with these DPUs: one is named only if it is in the
// cluster that this controller serves.
func (r *Reconciler) decide(ctx context.Context, host string, dpus []DPU, node *moorv1alpha1.DPUStorageNode) (decision, error) {
	if r.Several {
		return among(r.Cluster, host, dpus, node), nil
	}
	mine := of(r.Cluster, dpus)
	d := decide(host, mine, node)
	switch {
	case len(mine) == 0 && len(dpus) > 0 && node != nil && node.Spec.DPUName == "":
		return decision{words: foreign(dpus, r.Cluster)}, nil
	case r.Cluster != "" || d.name == "" && d.create == nil:
		return d, nil
	}
	all, err := r.clusters(ctx)
	if err != nil || len(all) < 2 {
		return d, err
	}
	return decision{words: several(all)}, nil
}
