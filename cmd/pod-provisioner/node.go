package main

import (
	"context"
	"errors"

	"github.com/spf13/pflag"
)

// nodeOptions are the flags of --mode node.
type nodeOptions struct {
	name    string
	kubelet string
}

func (n *nodeOptions) bind(fs *pflag.FlagSet) {
	fs.StringVar(&n.name, "node-name", "", "name of this node (node; required)")
	fs.StringVar(&n.kubelet, "kubelet-directory", "/var/lib/kubelet", "the kubelet's directory, with plugins and plugins_registry (node)")
}

func (o *options) runNode(context.Context) error {
	if o.node.name == "" {
		return errors.New("--node-name is required: the name of this node in Kubernetes")
	}
	return errors.New("not here yet")
}
