package failover

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// podReader finds the pods of a host that use our volumes.
type podReader struct {
	host   kube.Cluster
	driver string
}

// on are the pods of a host that use our volumes: found in the cache, and each as the
// API server itself has it, since what is deleted by force is not chosen by what a
// cache remembers; but for those that use one of the kept volumes, which stay. (To list
// them there would take up to 100 ms: a list has to wait until the API server's own cache
// has caught up, progressRequestPeriod in k8s.io/apiserver; the reading of one object has
// not.)
func (r podReader) on(ctx context.Context, node string, kept map[string]bool) ([]*pod, error) {
	found, err := podvolume.Users{Host: r.host, Driver: r.driver}.AllPodsOnNode(ctx, node)
	if err != nil {
		return nil, err
	}
	all := make([]*pod, len(found))
	for i := range found {
		all[i] = &pod{Pod: found[i]}
	}
	err = forEach(all, func(p *pod) error { return r.confirm(ctx, p, kept) })
	return slices.DeleteFunc(all, func(p *pod) bool { return len(p.volumes) == 0 }), err
}

// confirm reads a pod that uses our volumes; it is left without volumes if it is gone.
func (r podReader) confirm(ctx context.Context, p *pod, kept map[string]bool) error {
	volumes, err := r.volumesOf(ctx, &p.Pod)
	if err != nil || len(volumes) == 0 {
		return err
	}
	if (&pod{volumes: volumes}).uses(kept) {
		p.volumes = volumes
		return nil
	}
	uid := p.UID
	found, err := kube.Find(ctx, r.host.Live, client.ObjectKeyFromObject(p), &p.Pod)
	if found && p.UID == uid {
		p.volumes = volumes
	}
	return err
}

// volumesOf follows a pod's claims to our volumes. What a claim is bound to never
// changes, nor does a claim go while a pod uses it: so a cache will do that has
// them, and the API server is asked for what it lacks.
func (r podReader) volumesOf(ctx context.Context, p *corev1.Pod) ([]string, error) {
	var out []string
	for i := range p.Spec.Volumes {
		name := podvolume.ClaimName(p, &p.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		if err := r.find(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, claim, func() bool { return claim.Spec.VolumeName != "" }); err != nil {
			return nil, err
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		if err := r.find(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume, func() bool { return volume.UID != "" }); err != nil {
			return nil, err
		}
		if handle := podvolume.HandleOf(r.driver, volume); handle != "" {
			out = append(out, handle)
		}
	}
	return out, nil
}

// find reads an object from the cache, and from the API server itself if that does
// not have what is looked for. One that does not exist is left empty.
func (r podReader) find(ctx context.Context, key client.ObjectKey, o client.Object, has func() bool) error {
	if _, err := kube.Find(ctx, r.host.Client, key, o); err != nil || has() {
		return err
	}
	_, err := kube.Find(ctx, r.host.Live, key, o)
	return err
}
