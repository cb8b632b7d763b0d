package endpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// volume is the PersistentVolume of a request. The kubelet has its name in the target, so that no node has
// to watch all of them; what has that name has to have the driver and the handle.
func (s *Server) volume(ctx context.Context, r request) (*corev1.PersistentVolume, error) {
	name := volumeOf(r.target)
	if name == "" {
		return nil, csiserver.Invalid("target path %q is not one of a kubelet: it does not name a PersistentVolume", r.target)
	}
	var pv corev1.PersistentVolume
	found, err := kube.Find(ctx, s.o.Live, client.ObjectKey{Name: name}, &pv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	if !found || podvolume.HandleOf(s.o.Driver, &pv) != r.handle {
		return nil, fmt.Errorf("there is no PersistentVolume %s of driver %s with this handle: %w", name, s.o.Driver, provisioner.ErrUnavailable)
	}
	return &pv, nil
}

// wanted is the PodStaging of a request. Its finalizer is the controller's, which adds it before it makes
// the first pod: until then there is nothing to undo.
func (s *Server) wanted(r request, volume string) *moorv1alpha1.PodStaging {
	return &moorv1alpha1.PodStaging{
		ObjectMeta: metav1.ObjectMeta{Name: Name(s.o.Driver, r.handle, s.o.Node, r.user.UID)},
		Spec:       moorv1alpha1.PodStagingSpec{ProvisionerName: s.o.Driver, VolumeName: volume, NodeName: s.o.Node, User: r.user, ReadOnly: r.readOnly},
	}
}

// ensure is the PodStaging of a request, made if it is not there. One that is of no use any more is
// removed first.
func (s *Server) ensure(ctx context.Context, r request, volume string) (*moorv1alpha1.PodStaging, error) {
	for {
		have := s.wanted(r, volume)
		found, err := kube.Find(ctx, s.o.Client, client.ObjectKeyFromObject(have), have)
		if err != nil {
			return nil, err
		}
		if !found {
			if have, err = s.create(ctx, r, volume); err != nil {
				return nil, err
			}
		}
		over, err := s.over(r, volume, have)
		if err != nil || !over {
			return have, err
		}
		if err := s.remove(ctx, have); err != nil {
			return nil, fmt.Errorf("remove the staging that was there before: %w", err)
		}
	}
}

// create makes the PodStaging, if the node may stage this volume, or reads the one that the cache does not
// show yet.
func (s *Server) create(ctx context.Context, r request, volume string) (*moorv1alpha1.PodStaging, error) {
	out := s.wanted(r, volume)
	if err := s.o.Serves(ctx); err != nil {
		return nil, err
	}
	if err := s.sole(ctx, r, volume); err != nil {
		return nil, err
	}
	if _, err := kube.CreateLive(ctx, s.o.Client, s.o.Live, out); err != nil {
		return nil, fmt.Errorf("ask for the volume to be staged: %w: %w", provisioner.ErrUnavailable, err)
	}
	return out, nil
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
			return fmt.Errorf("the volume is for one pod alone (ReadWriteOncePod), and pod %s/%s uses it: %w", p.Spec.User.Namespace, p.Spec.User.Name, provisioner.ErrInUse)
		}
	}
	return nil
}

// over reports whether a PodStaging cannot serve a request any more, so that it has to be made anew:
// it is being removed, or is of another volume with this handle, or was staged in another boot of the node,
// after which nothing is mounted any more.
func (s *Server) over(r request, volume string, have *moorv1alpha1.PodStaging) (bool, error) {
	switch report := have.Status.Report; {
	case !have.DeletionTimestamp.IsZero(), have.Spec.VolumeName != volume:
		return true, nil
	case have.Status.Phase == moorv1alpha1.PodStagingStaged && report != nil && report.BootID != s.o.Boot:
		return true, nil
	case have.Spec.ReadOnly != r.readOnly:
		return false, fmt.Errorf("the pod has it with read-only %t, asked was %t: %w", have.Spec.ReadOnly, r.readOnly, provisioner.ErrExists)
	}
	return false, nil
}

// staged waits until the volume is staged. A PodStaging that has failed is removed: the next call makes
// another.
func (s *Server) staged(ctx context.Context, of *moorv1alpha1.PodStaging) (*moorv1alpha1.PodStaging, error) {
	last := of
	got, err := s.o.Stagings.Await(ctx, client.ObjectKeyFromObject(of), func(p *moorv1alpha1.PodStaging, found bool) (bool, error) {
		if !found || p.UID != of.UID {
			return false, nil // the cache does not show it yet
		}
		last = p
		switch {
		case !p.DeletionTimestamp.IsZero():
			return false, fmt.Errorf("its staging was called off: %s: %w", words(p), provisioner.ErrUnavailable)
		case p.Status.Phase == moorv1alpha1.PodStagingFailed:
			return false, errFailed
		}
		return p.Status.Phase == moorv1alpha1.PodStagingStaged && p.Status.Directory != "", nil
	})
	switch {
	case errors.Is(err, errFailed):
		if err := kube.Delete(ctx, s.o.Client, last); err != nil {
			return nil, fmt.Errorf("the staging failed: %s; remove it: %w: %w", words(last), provisioner.ErrUnavailable, err)
		}
		return nil, fmt.Errorf("the staging failed: %s", words(last))
	case timeOver(err):
		return nil, fmt.Errorf("it is not staged yet: %s: %w", words(last), provisioner.ErrUnavailable)
	}
	return got, err
}

// errFailed ends the wait for a staging that has failed.
var errFailed = errors.New("the staging failed")

// remove deletes a PodStaging and waits until it is gone, which the API server itself has to say.
func (s *Server) remove(ctx context.Context, p *moorv1alpha1.PodStaging) error {
	if err := kube.Delete(ctx, s.o.Client, p); err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	last := p
	_, err := s.o.Stagings.Await(ctx, client.ObjectKeyFromObject(p), func(now *moorv1alpha1.PodStaging, found bool) (bool, error) {
		if found && now.UID == p.UID {
			last = now
			return false, nil
		}
		var live moorv1alpha1.PodStaging
		found, err := kube.Find(ctx, s.o.Live, client.ObjectKeyFromObject(p), &live)
		return !found || live.UID != p.UID, err
	})
	switch {
	case timeOver(err):
		return fmt.Errorf("it is not unstaged yet: %s: %w", words(last), provisioner.ErrUnavailable)
	case err != nil:
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}

// timeOver reports whether a wait ended because the time of the call was over.
func timeOver(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// words is what a PodStaging waits for.
func words(p *moorv1alpha1.PodStaging) string {
	switch {
	case p.Status.Message != "":
		return p.Status.Message
	case p.Status.Phase != "":
		return fmt.Sprintf("PodStaging %s is %s", p.Name, p.Status.Phase)
	}
	return fmt.Sprintf("PodStaging %s was not looked at yet (does pod-provisioner --mode=controller run?)", p.Name)
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
