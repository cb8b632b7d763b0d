package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SlimNode leaves of a Node what tells where it is. It is a cache transform: the
// rest of a Node is large, and changes often.
func SlimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		return &corev1.Node{TypeMeta: n.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels, DeletionTimestamp: n.DeletionTimestamp,
		}}, nil
	}
	return o, nil
}
