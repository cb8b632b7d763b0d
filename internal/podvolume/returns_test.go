package podvolume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestReturns(t *testing.T) {
	owned := func(kind string, controller bool) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: ptr.To(controller)}}}}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a StatefulSet's":          {owned("StatefulSet", true), true},
		"owned, not controlled":    {owned("Thing", false), false},
		"bare":                     {&corev1.Pod{}, false},
		"the copy of a static pod": {owned("Node", true), false},
	} {
		if got := Returns(c.pod); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
