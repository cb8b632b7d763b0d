package provisioner

import (
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestSchemeIsNotWritten: a provisioner may be made while events are written. The race detector
// finds a write of the scheme, which would end the process at times.
func TestSchemeIsNotWritten(t *testing.T) {
	var all sync.WaitGroup
	all.Go(func() {
		if err := corev1.AddToScheme(scheme.Scheme); err != nil {
			t.Error(err)
		}
	})
	all.Go(func() {
		if _, _, err := scheme.Scheme.ObjectKinds(&corev1.Event{}); err != nil {
			t.Error(err)
		}
	})
	all.Wait()
	fresh := runtime.NewScheme()
	if err := corev1.AddToScheme(fresh); err != nil || !fresh.Recognizes(corev1.SchemeGroupVersion.WithKind("Pod")) {
		t.Errorf("a scheme that lacks the core kinds did not get them: %v", err)
	}
}
