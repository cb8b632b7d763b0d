package main

import (
	"errors"

	"github.com/spf13/pflag"

	nodepods "github.com/moor-storage/moor/pkg/node/pods"
	"github.com/moor-storage/moor/pkg/vendorplugin/pluginflags"
)

// dpuOptions are the flags of --mode node on a DPU.
type dpuOptions struct {
	plugin    pluginflags.Flags
	namespace string
}

func (d *dpuOptions) bind(fs *pflag.FlagSet) {
	const onDPU = " (node, on a DPU)"
	d.plugin.Bind(fs, "; empty: this node is no DPU", onDPU)
	d.plugin.BindVolumes(fs, onDPU)
	fs.StringVar(&d.namespace, "volume-namespace", "", "namespace of the claims and VolumeAttachments that snap-controller makes; required with --plugin-name"+onDPU)
}

// open is the DPU that the flags describe; nil if there is none.
func (d *dpuOptions) open() (*nodepods.DPU, error) {
	if d.plugin.Name == "" {
		return nil, nil //nolint:nilnil // no DPU is no failure
	}
	if d.namespace == "" {
		return nil, errors.New("--volume-namespace is required with --plugin-name: the namespace where snap-controller makes claims in this cluster")
	}
	site, err := d.plugin.Site(d.plugin.Name + ".plugin.moor.dev")
	if err != nil {
		return nil, err
	}
	return &nodepods.DPU{
		Socket: site.Socket, Plugin: site.Options, SNAP: site.SNAP, Namespace: d.namespace, Volumes: site.Volumes, Records: site.State,
	}, nil
}
