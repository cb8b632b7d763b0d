//go:build tools

// Package snapshotter pins Kubernetes' snapshot-controller and csi-snapshotter,
// with the CRDs of snapshot.storage.k8s.io, in a module of their own.
package snapshotter

import (
	_ "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	_ "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter"
	_ "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller"
)
