package podvolume

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The transforms here leave of an object what is read of it. It may be patched, and
// must not be written back whole.

// CacheUsers is how a cache holds pods that count as users of volumes: of all
// namespaces.
func CacheUsers() map[client.Object]cache.ByObject { return everywhere(&corev1.Pod{}, SlimUser) }

// CachePods is CacheUsers with what decides where a pod can run.
func CachePods() map[client.Object]cache.ByObject { return everywhere(&corev1.Pod{}, SlimPod) }

// CacheClaims is how a cache holds claims: of all namespaces.
func CacheClaims() map[client.Object]cache.ByObject {
	return everywhere(&corev1.PersistentVolumeClaim{}, SlimClaim)
}

func everywhere(kind client.Object, slim toolscache.TransformFunc) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{kind: {Namespaces: map[string]cache.Config{cache.AllNamespaces: {}}, Transform: slim}}
}

// identity is what informers and writers need of an object's metadata.
func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Finalizers: m.Finalizers,
	}
}

// SlimUser is a cache transform that leaves of a pod where it runs, how it is and
// which claims it uses.
func SlimUser(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	return &corev1.Pod{
		TypeMeta:   p.TypeMeta,
		ObjectMeta: identity(&p.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, Volumes: claimed(p.Spec.Volumes)},
		Status:     corev1.PodStatus{Phase: p.Status.Phase},
	}, nil
}

// SlimPod is SlimUser that leaves also what decides where the pod, and others beside
// it, can run.
func SlimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	slim, err := SlimUser(p)
	out := slim.(*corev1.Pod)
	out.Labels = p.Labels
	out.Spec.NodeSelector, out.Spec.Affinity = p.Spec.NodeSelector, p.Spec.Affinity
	out.Spec.Tolerations, out.Spec.TopologySpreadConstraints = p.Spec.Tolerations, p.Spec.TopologySpreadConstraints
	return out, err
}

// claimed are those of a pod's volumes that have a claim, with no more than its name
// is found by.
func claimed(all []corev1.Volume) []corev1.Volume {
	n := 0
	for i := range all {
		if all[i].PersistentVolumeClaim != nil || all[i].Ephemeral != nil {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	out := make([]corev1.Volume, 0, n)
	for i := range all {
		switch v := &all[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		case v.Ephemeral != nil:
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		}
	}
	return out
}

// SlimClaim is a cache transform that leaves of a claim what it is bound to, and how
// far it has grown.
func SlimClaim(o any) (any, error) {
	c, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok {
		return o, nil
	}
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   c.TypeMeta,
		ObjectMeta: identity(&c.ObjectMeta),
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: c.Spec.VolumeName, Resources: corev1.VolumeResourceRequirements{Requests: c.Spec.Resources.Requests},
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: c.Status.Phase, Conditions: c.Status.Conditions,
			AllocatedResources: c.Status.AllocatedResources, AllocatedResourceStatuses: c.Status.AllocatedResourceStatuses,
		},
	}, nil
}

// SlimPersistentVolume is a cache transform that leaves of a PersistentVolume what
// ties a volume to a claim.
func SlimPersistentVolume(o any) (any, error) {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return o, nil
	}
	out := &corev1.PersistentVolume{
		TypeMeta:   pv.TypeMeta,
		ObjectMeta: identity(&pv.ObjectMeta),
		Status:     corev1.PersistentVolumeStatus{Phase: pv.Status.Phase},
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		out.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	if csi := pv.Spec.CSI; csi != nil {
		out.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle}
	}
	return out, nil
}
