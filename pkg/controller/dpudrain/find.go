package dpudrain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/writer"
)

// What is said of pods that a drain does not evict.
const (
	bare      = "no controller would make it anew: delete it"
	daemonSet = "its DaemonSet would make it anew for this host: delete it, and the new one waits until the drain is taken back"
)

// podsOf are the pods of a host that use volumes and have not finished, as the API server
// has them: one that was bound to the host a moment ago is among them.
func (r *Reconciler) podsOf(ctx context.Context, host string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := r.Host.Live.List(ctx, &list, client.MatchingFields{podvolume.PodByNode: host}); err != nil {
		return nil, fmt.Errorf("list the pods of host %s: %w", host, err)
	}
	users := podvolume.Users{Host: r.Host, Drivers: r.Drivers}
	var out []corev1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		if podvolume.Finished(p) {
			continue
		}
		volumes, err := users.VolumesOf(ctx, p)
		if err != nil {
			return nil, err
		}
		if len(volumes) > 0 {
			out = append(out, *p)
		}
	}
	return out, nil
}

// userOf is what counts of a pod.
func userOf(p *corev1.Pod) user {
	u := user{name: p.Namespace + "/" + p.Name, ending: !p.DeletionTimestamp.IsZero()}
	switch owner := metav1.GetControllerOf(p); {
	case !podvolume.Returns(p):
		u.kept = bare
	case owner.Kind == "DaemonSet":
		u.kept = daemonSet
	}
	return u
}

// find finds what is left beside pods: as the caches have it, or as the API servers do.
func (r *Reconciler) find(ctx context.Context, f *findings, host string, hostCluster, dpuCluster client.Reader) error {
	f.replicas = 0 // which caches may have counted
	var attachments storagev1alpha1.DPUVolumeAttachmentList
	there := client.MatchingFields{index.DPUVolumeAttachmentByNode: host} // which is a selectable field too
	if err := hostCluster.List(ctx, &attachments, client.InNamespace(r.Namespace), there, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the attachments to host %s: %w", host, err)
	}
	for i := range attachments.Items {
		if a := &attachments.Items[i]; a.Spec.Role == storagev1alpha1.RoleReplica {
			f.replicas++
		} else {
			f.held = append(f.held, fmt.Sprintf("volume %s is attached", a.Spec.DPUVolumeName))
		}
	}
	slices.Sort(f.held)
	claims, err := r.claimsOf(ctx, f.dpu, dpuCluster)
	if err != nil {
		return err
	}
	shown, err := r.shownBy(ctx, f.dpu, dpuCluster)
	f.held = slices.Concat(f.held, claims, shown)
	return err
}

// claimsOf say by which claims the DPU may write.
func (r *Reconciler) claimsOf(ctx context.Context, dpu string, from client.Reader) ([]string, error) {
	var list moorv1alpha1.WriterClaimList
	if err := from.List(ctx, &list, client.InNamespace(r.TargetNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the writer claims of DPU %s: %w", dpu, err)
	}
	var out []string
	for i := range list.Items {
		c := &list.Items[i]
		switch {
		case !writer.HeldBy(c, dpu):
		case !writer.Held(c):
			out = append(out, fmt.Sprintf("the writer claim of volume %s was made anew and does not know yet who may write", c.Spec.VolumeName))
		default:
			out = append(out, fmt.Sprintf("DPU %s holds the writer claim of volume %s (%s, epoch %d)", dpu, c.Spec.VolumeName, c.Status.Phase, c.Status.Epoch))
		}
	}
	slices.Sort(out)
	return out, nil
}

// shownBy say which volumes the DPU shows to its host by its own word, but for replicas:
// those that many hosts may write have no claim, and their DPUVolumeAttachment may have
// been taken away by force.
func (r *Reconciler) shownBy(ctx context.Context, dpu string, from client.Reader) ([]string, error) {
	var list storagev1alpha1.VolumeAttachmentList
	if err := from.List(ctx, &list, client.InNamespace(r.TargetNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the VolumeAttachments of DPU %s: %w", dpu, err)
	}
	var out []string
	for i := range list.Items {
		if a := &list.Items[i]; a.Spec.NodeName == dpu && !a.IsReplica() && a.Status.DPU.Attached {
			out = append(out, fmt.Sprintf("DPU %s shows volume %s to the host", dpu, a.VolumeName()))
		}
	}
	slices.Sort(out)
	return out, nil
}
