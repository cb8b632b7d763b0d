package failover

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// pod is a pod and those of our volumes that it uses.
type pod struct {
	corev1.Pod
	volumes []string
}

func (p *pod) uses(volumes map[string]bool) bool {
	for _, v := range p.volumes {
		if volumes[v] {
			return true
		}
	}
	return false
}

// findPods looks, while the receipts are asked for, which pods of the host may go
// with them. What it has found counts only if it is no error.
func (f *Failover) findPods(ctx context.Context, s *pass) error {
	if s.underway && s.takes() && !s.observation.ZeroTrust { // no pod uses what a person attached
		s.pods, s.podsErr = f.pods(ctx, s.node.Name)
	}
	return s.podsErr
}

// pods are those of a host that use our volumes: found in the cache, and each as the
// API server itself has it, since what is deleted by force is not chosen by what a
// cache remembers. (To list them there would take up to 100 ms: a list has to wait
// until the API server's own cache has caught up, progressRequestPeriod in
// k8s.io/apiserver; the reading of one object has not.)
func (f *Failover) pods(ctx context.Context, node string) ([]*pod, error) {
	found, err := podvolume.Users{Host: f.Host, Driver: f.Driver}.AllPodsOnNode(ctx, node)
	if err != nil {
		return nil, err
	}
	all := make([]*pod, len(found))
	for i := range found {
		all[i] = &pod{Pod: found[i]}
	}
	err = forEach(all, func(p *pod) error { return f.confirm(ctx, p) })
	return slices.DeleteFunc(all, func(p *pod) bool { return len(p.volumes) == 0 }), err
}

// confirm reads a pod that uses our volumes; it is left without volumes if it is gone.
func (f *Failover) confirm(ctx context.Context, p *pod) error {
	volumes, err := f.volumesOf(ctx, &p.Pod)
	if err != nil || len(volumes) == 0 {
		return err
	}
	uid := p.UID
	found, err := kube.Find(ctx, f.Host.Live, client.ObjectKeyFromObject(p), &p.Pod)
	if found && p.UID == uid {
		p.volumes = volumes
	}
	return err
}

// volumesOf follows a pod's claims to our volumes. What a claim is bound to never
// changes, nor does a claim go while a pod uses it: so a cache will do that has
// them, and the API server is asked for what it lacks.
func (f *Failover) volumesOf(ctx context.Context, p *corev1.Pod) ([]string, error) {
	var out []string
	for i := range p.Spec.Volumes {
		name := podvolume.ClaimName(p, &p.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		if err := f.find(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, claim, func() bool { return claim.Spec.VolumeName != "" }); err != nil {
			return nil, err
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		if err := f.find(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume, func() bool { return volume.UID != "" }); err != nil {
			return nil, err
		}
		if handle := podvolume.HandleOf(f.Driver, volume); handle != "" {
			out = append(out, handle)
		}
	}
	return out, nil
}

// find reads an object from the cache, and from the API server itself if that does
// not have what is looked for. One that does not exist is left empty.
func (f *Failover) find(ctx context.Context, key client.ObjectKey, o client.Object, has func() bool) error {
	if _, err := kube.Find(ctx, f.Host.Client, key, o); err != nil || has() {
		return err
	}
	_, err := kube.Find(ctx, f.Host.Live, key, o)
	return err
}
