//go:build tools

// Package newest pins the newest release of Kubernetes that make skew is for, in a
// module of its own, as package kubernetes does with the one that the test bed runs.
package newest

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
