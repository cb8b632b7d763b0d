// Package api is the tests that need a real kube-apiserver, and nothing else
// of a cluster: schemas, compare-and-swap, watches, finalizers. They carry the
// build tag api and take kube-apiserver and etcd from KUBEBUILDER_ASSETS.
package api
