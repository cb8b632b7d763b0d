package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/kube"
	nodepods "github.com/moor-storage/moor/pkg/node/pods"
	"github.com/moor-storage/moor/pkg/node/registrar"
)

// nodeOptions are the flags of --mode node.
type nodeOptions struct {
	name    string
	kubelet string
	dpu     dpuOptions
}

func (n *nodeOptions) bind(fs *pflag.FlagSet) {
	fs.StringVar(&n.name, "node-name", "", "name of this node (node; required)")
	fs.StringVar(&n.kubelet, "kubelet-directory", "/var/lib/kubelet", "the kubelet's directory, with plugins and plugins_registry (node)")
	n.dpu.bind(fs)
}

func (o *options) runNode(ctx context.Context) error {
	switch {
	case o.node.name == "":
		return errors.New("--node-name is required: the name of this node in Kubernetes")
	case !filepath.IsAbs(o.node.kubelet):
		return fmt.Errorf("--kubelet-directory is %q: give an absolute path", o.node.kubelet)
	}
	o.flags.LeaderElect = false // each node works for itself
	dpu, err := o.node.dpu.open()
	if err != nil {
		return err
	}
	boot, err := daemon.BootID()
	if err != nil {
		return err
	}
	config, err := o.flags.Config(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	scheme, err := kube.NewScheme(corev1.AddToScheme, moorv1alpha1.AddPodsToScheme, pavv1alpha1.AddToScheme, storagev1alpha1.AddDPUToScheme)
	if err != nil {
		return err
	}
	caches := cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: nodepods.ByObject(o.node.name)}
	mgr, err := kube.NewManager(config, scheme, o.flags, "", caches)
	if err != nil {
		return err
	}
	agent, err := nodepods.New(nodepods.Options{
		Node: o.node.name, Boot: boot, Version: version.Built().Version, Root: o.root, Kubelet: o.node.kubelet,
		DPU: dpu, Registrar: registrar.Kubelet{Directory: filepath.Join(o.node.kubelet, "plugins_registry"), Logger: ctrl.Log}, Metrics: metrics.Registry,
	})
	if err != nil {
		return err
	}
	if err := agent.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
