//go:build tools

package conformance

import (
	// The program in the image that the suite runs beside busybox.
	_ "k8s.io/kubernetes/test/images/agnhost"
)
