package endpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kubelet"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// volume is the PersistentVolume of a request. The kubelet has its name in the target, so that no node has
// to watch all of them; what has that name has to have the driver and the handle.
func (s *Server) volume(ctx context.Context, r request) (*corev1.PersistentVolume, error) {
	at, ok := kubelet.Parse(r.target)
	if !ok {
		return nil, csiserver.Invalid("target path %q is not one of a kubelet: it does not name a PersistentVolume", r.target)
	}
	var pv corev1.PersistentVolume
	found, err := kube.Find(ctx, s.o.Live, client.ObjectKey{Name: at.Volume}, &pv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	if !found || podvolume.HandleOf(&pv, s.o.Driver) != r.handle {
		return nil, fmt.Errorf("there is no PersistentVolume %s of driver %s with this handle: %w", at.Volume, s.o.Driver, provisioner.ErrUnavailable)
	}
	return &pv, nil
}

// wanted is the PodStaging of a request.
func (s *Server) wanted(r request, volume string) *moorv1alpha1.PodStaging {
	return &moorv1alpha1.PodStaging{
		ObjectMeta: metav1.ObjectMeta{Name: Name(s.o.Driver, r.handle, s.o.Node, r.user.UID)},
		Spec:       moorv1alpha1.PodStagingSpec{ProvisionerName: s.o.Driver, VolumeName: volume, NodeName: s.o.Node, User: r.user, ReadOnly: r.readOnly},
	}
}

// mayStage returns why the node may not stage this volume for the pod; nil if it may.
func (s *Server) mayStage(ctx context.Context, r request, volume string) error {
	if err := s.o.Serves(ctx); err != nil {
		return err
	}
	return s.sole(ctx, r, volume)
}

// sole refuses a volume for one pod alone that another one uses here.
func (s *Server) sole(ctx context.Context, r request, volume string) error {
	if !r.alone {
		return nil
	}
	var list moorv1alpha1.PodStagingList
	if err := s.o.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("look which pods use the volume: %w", err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Spec.VolumeName == volume && p.Spec.User.UID != r.user.UID {
			return fmt.Errorf("the volume is for one pod alone (ReadWriteOncePod), and %s uses it: %w", p.Spec.User, provisioner.ErrInUse)
		}
	}
	return nil
}

// at are the PodStagings of a volume, by its handle, that a target is for. A cache that has none is no
// evidence: the one that was just made may not be in it.
func (s *Server) at(ctx context.Context, handle, target string) ([]moorv1alpha1.PodStaging, error) {
	for _, from := range []client.Reader{s.o.Client, s.o.Live} {
		var list moorv1alpha1.PodStagingList
		if err := from.List(ctx, &list, client.MatchingFields{FieldNode: s.o.Node}); err != nil {
			return nil, fmt.Errorf("find what is staged for the target: %w: %w", provisioner.ErrUnavailable, err)
		}
		list.Items = slices.DeleteFunc(list.Items, func(p moorv1alpha1.PodStaging) bool {
			return !s.of(&p, handle, target)
		})
		if len(list.Items) > 0 {
			return list.Items, nil
		}
	}
	return nil, nil
}

// of reports whether a PodStaging is that of a volume for the pod that a target belongs to.
func (s *Server) of(p *moorv1alpha1.PodStaging, handle, target string) bool {
	return p.Name == Name(s.o.Driver, handle, s.o.Node, p.Spec.User.UID) && slices.Contains(strings.Split(target, "/"), string(p.Spec.User.UID))
}

// FieldNode is the field of PodStagings by which API servers, and caches with IndexByNode, list those of a
// node.
const FieldNode = "spec.nodeName"

// IndexByNode finds PodStagings by their node.
func IndexByNode() kube.Index {
	return kube.IndexOf(FieldNode, func(p *moorv1alpha1.PodStaging) []string { return kube.Some(p.Spec.NodeName) })
}
