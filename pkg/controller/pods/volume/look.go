package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
)

// look sees what a pass needs to know. Of a volume at rest it reads caches alone.
func (r *Reconciler) look(ctx context.Context, v *moorv1alpha1.PodVolume) (s seen, strays []corev1.Pod, err error) {
	s.now = r.Clock.Now()
	w := helper.OfVolume(v)
	if v.Status.Pod != nil {
		if s.pod, err = r.Pods.See(ctx, w, v.Status.Pod); err != nil {
			return s, nil, err
		}
	}
	if strays, err = r.Pods.Strays(ctx, w, v.Status.Pod); err != nil {
		return s, nil, err
	}
	s.strays = len(strays)
	if s.provisioner, err = r.Provisioners.Find(ctx, helper.ProvisionerFrom(r.Cluster, retries(v, s.now), v.Status.Pod, s.pod), v.Spec.ProvisionerName); err != nil {
		return s, nil, err
	}
	if !v.DeletionTimestamp.IsZero() {
		s.staged, err = r.staged(ctx, v.Name)
		return s, strays, err
	}
	s.abandoned, s.kept, err = r.orphaned(ctx, v)
	return s, strays, err
}

// staged are the places where a volume is staged, in words.
func (r *Reconciler) staged(ctx context.Context, name string) ([]string, error) {
	var all moorv1alpha1.PodStagingList
	if err := r.Client.List(ctx, &all, client.MatchingFields{index.PodStagingByVolume: name}); err != nil {
		return nil, fmt.Errorf("list where volume %s is staged: %w", name, err)
	}
	var out []string
	for i := range all.Items {
		s := &all.Items[i].Spec
		out = append(out, fmt.Sprintf("pod %s/%s has it on node %s", s.User.Namespace, s.User.Name, s.NodeName))
	}
	return out, nil
}

// orphaned sees whether the claim of a volume and its PersistentVolume are gone: if none was made, it is
// abandoned, and else it is kept. That none was made is believed of the API server alone, and only of a
// volume that was never offered for one.
func (r *Reconciler) orphaned(ctx context.Context, v *moorv1alpha1.PodVolume) (abandoned, kept bool, err error) {
	from := []client.Reader{r.Client, r.Live}
	offered := v.Annotations[moorv1alpha1.AnnotationOffered] != ""
	if offered {
		from = from[:1]
	}
	for _, reader := range from {
		there, err := r.owned(ctx, reader, v)
		if there || err != nil {
			return false, false, err
		}
	}
	return !offered, offered, nil
}

func (r *Reconciler) owned(ctx context.Context, from client.Reader, v *moorv1alpha1.PodVolume) (bool, error) {
	of, err := askedOf(v)
	if err != nil {
		return false, err
	}
	claim := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, from, client.ObjectKeyFromObject(of.claim), claim)
	if err != nil || found && claim.UID == ClaimUID(v) {
		return true, err
	}
	return kube.Find(ctx, from, types.NamespacedName{Name: v.Name}, &corev1.PersistentVolume{})
}
