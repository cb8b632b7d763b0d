package kube

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SlimNode leaves of a Node what is read of it: where it is, whether it is ready, dead and
// takes pods, of which boot it is, and which volumes Kubernetes says are attached, by
// which a host that fails over is judged. It is a cache transform: the rest of a Node, the names of
// its images above all, is large and changes often. What is left may be patched
// and must not be written back whole.
func SlimNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	return &corev1.Node{
		TypeMeta: n.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels,
			CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp, Finalizers: n.Finalizers,
		},
		Spec: corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
		Status: corev1.NodeStatus{
			Conditions: conditionsOf(n.Status.Conditions), VolumesAttached: n.Status.VolumesAttached,
			NodeInfo: corev1.NodeSystemInfo{BootID: n.Status.NodeInfo.BootID},
		},
	}, nil
}

// conditionsOf are the Ready condition and those whose type has a domain, which are none of
// the kubelet's, without the times of the last heartbeat.
func conditionsOf(all []corev1.NodeCondition) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, c := range all {
		if c.Type == corev1.NodeReady || strings.Contains(string(c.Type), "/") {
			out = append(out, corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime})
		}
	}
	return out
}

// SlimLease leaves of a Lease what is read of it: whose it is, and when its holder says
// that it renewed it. It is a cache transform.
func SlimLease(o any) (any, error) {
	l, ok := o.(*coordinationv1.Lease)
	if !ok {
		return o, nil
	}
	return &coordinationv1.Lease{
		TypeMeta:   l.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, UID: l.UID, ResourceVersion: l.ResourceVersion},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: l.Spec.HolderIdentity, RenewTime: l.Spec.RenewTime},
	}, nil
}
