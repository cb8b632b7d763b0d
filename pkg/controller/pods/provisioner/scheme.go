package provisioner

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Each provision controller that the library makes adds the core kinds to client-go's own scheme, which
// has them, while typed clients and event recorders read that scheme: a concurrent write of a map ends
// the process. So what has the kinds is left as it is.
func init() { corev1.AddToScheme = unlessRegistered(corev1.AddToScheme) }

// unlessRegistered adds the core kinds to schemes that lack them, and writes to no other.
func unlessRegistered(add func(*runtime.Scheme) error) func(*runtime.Scheme) error {
	return func(s *runtime.Scheme) error {
		if s.Recognizes(corev1.SchemeGroupVersion.WithKind("Event")) {
			return nil
		}
		return add(s)
	}
}
