// Package hostcluster carries what is wanted from the host cluster to the DPU
// cluster and what is seen back again. Its subpackages are one reconciler per kind
// (vendor, policy, volume, snapshot, attachment, node), and events, which repeats
// events where users look. It alone grants the right to write (WriterClaim); it
// never frees it. A WriterClaim is written by compare-and-swap, so a grant that
// rests on a stale cache fails.
package hostcluster

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// Clusters are the two clusters as the reconcilers use them.
type Clusters struct {
	// Host has a cache of Namespace.
	Host kube.Cluster
	// DPU has a cache of TargetNamespace.
	DPU kube.Cluster
	// DPUClusterName is how statuses name the DPU cluster.
	DPUClusterName string
	// Namespace of the users' objects in the host cluster.
	Namespace string
	// TargetNamespace of their mirrors in the DPU cluster.
	TargetNamespace string
	// DPUCluster is which of several DPU clusters is served, as "namespace/name" of its
	// DPUCluster; "": there is one (several.go).
	DPUCluster string
}

// Target is the key of a name in the target namespace.
func (c Clusters) Target(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.TargetNamespace, Name: name}
}

// OwnerValue is the value of an owned-by annotation.
func OwnerValue(o client.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// OwnedBy reports whether mirror was made for exactly this owner.
func OwnedBy(mirror, owner client.Object) bool {
	return mirror.GetLabels()[storagev1alpha1.LabelOwnerUID] == string(owner.GetUID())
}

// MadeByDPF reports whether a mirror without the label of an owner names this one
// in DPF's annotation: DPF itself made it, before Moor was there.
func MadeByDPF(mirror, owner client.Object) bool {
	if _, ours := mirror.GetLabels()[storagev1alpha1.LabelOwnerUID]; ours {
		return false
	}
	for _, key := range []string{storagev1alpha1.AnnotationOwnedByDPUVolume, storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment} {
		if mirror.GetAnnotations()[key] == OwnerValue(owner) {
			return true
		}
	}
	return false
}

// OwnMirror reads the mirror of owner, which is on its way out, into mirror and reports whether
// there is one. That there is none only the API server itself can say: the cache may not show
// yet what was made a moment ago. Without one, mirror is what else has its name; it has no UID
// if nothing has.
func (c Clusters) OwnMirror(ctx context.Context, owner, mirror client.Object) (bool, error) {
	for _, reader := range []client.Reader{c.DPU.Client, c.DPU.Live} {
		found, err := kube.Find(ctx, reader, c.Target(owner.GetName()), mirror)
		if err != nil {
			return false, err
		}
		if found && (OwnedBy(mirror, owner) || MadeByDPF(mirror, owner)) {
			return true, nil
		}
		if !found {
			mirror.SetUID("")
		}
	}
	return false, nil
}

// ToOwner maps an object in the DPU cluster to the owner that its annotation
// names.
func ToOwner[T client.Object](annotation string) handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o T) []reconcile.Request {
		namespace, name, ok := strings.Cut(o.GetAnnotations()[annotation], "/")
		if !ok {
			return nil
		}
		return []reconcile.Request{kube.RequestFor(namespace, name)}
	})
}
