package moor

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/ociimage"
	"github.com/moor-storage/moor/test/kit"
)

// The accounts of pods as volumes; the tokens of the second are bound to their Nodes.
const (
	podsController = "pod-provisioner-controller"
	podsNode       = "pod-provisioner-node"
)

// ubuntu is the image of PaV's examples: what its commands use of it.
const ubuntu = "docker.io/library/ubuntu:20.04"

// podSite is a cluster with pods as volumes.
type podSite struct {
	cluster string
	nodes   []string
	// control is the name of the process for the cluster; the names of those on the nodes
	// end with the node.
	control string
	// webhookPort is where API servers have PavProvisioners checked.
	webhookPort string
	// controlArgs and nodeArgs are what the processes of the site have of their own.
	controlArgs, nodeArgs []string
}

// podSites are the clusters of a bed on which pods as volumes are deployed.
func podSites(c cluster) []podSite {
	var out []podSite
	if c.Options().Pods {
		out = append(out, podSite{
			cluster: devcluster.HostCluster, nodes: c.Nodes(), control: "pod-provisioner", webhookPort: "9443",
			controlArgs: []string{"--metrics-bind-address=:9111", "--health-probe-bind-address=:9112"},
			nodeArgs:    []string{"--metrics-bind-address=:9302", "--health-probe-bind-address=:9303"},
		})
	}
	if !c.Options().DPUPods {
		return out
	}
	for _, s := range dpuSites(c) {
		out = append(out, podSite{
			cluster: s.Cluster, nodes: s.DPUs, control: "pod-provisioner-" + s.Cluster, webhookPort: strconv.Itoa(9444 + s.index),
			controlArgs: []string{s.metrics(9113), s.health(9114)},
			nodeArgs: []string{
				"--metrics-bind-address=:9205", "--health-probe-bind-address=:9206",
				"--plugin-name=pav", "--plugin-root=" + pluginRoot, "--snap-socket=" + layout.SNAPSocket, "--volume-namespace=" + kit.Namespace,
			},
		})
	}
	return out
}

// deployPods deploys pods as volumes on the clusters that are to have them, and brings the image
// of its examples to their nodes. It returns the processes that it has started.
func deployPods(ctx context.Context, c *devcluster.Cluster, clients kit.Clients, progress io.Writer) ([]devcluster.Process, error) {
	sites := podSites(c)
	if len(sites) == 0 {
		return nil, nil
	}
	if err := loadUbuntu(ctx, c); err != nil {
		return nil, fmt.Errorf("make the image %s: %w", ubuntu, err)
	}
	var out []devcluster.Process
	for _, site := range sites {
		fmt.Fprintf(progress, "deploying pods as volumes on the %s cluster\n", site.cluster)
		started, err := site.deploy(ctx, c, clients.In(site.cluster))
		if err != nil {
			return nil, fmt.Errorf("pods as volumes on the %s cluster: %w", site.cluster, err)
		}
		out = append(out, started...)
	}
	return out, nil
}

// loadUbuntu brings the image of PaV's examples to all machines with a kubelet.
func loadUbuntu(ctx context.Context, c *devcluster.Cluster) error {
	files, err := devcluster.BusyboxFiles(ctx)
	if err != nil {
		return err
	}
	files, err = devcluster.WithPrograms(ctx, files, map[string]string{"/bin/bash": "bash"})
	if err != nil {
		return err
	}
	return c.LoadImage(ctx, "ubuntu", ociimage.Image{Names: []string{ubuntu}, Command: []string{"bash"}, Files: files})
}

// deploy applies the manifests and starts the processes, which it returns.
func (s podSite) deploy(ctx context.Context, c *devcluster.Cluster, in client.Client) ([]devcluster.Process, error) {
	objects, err := kit.ReadManifests(filepath.Join(c.Root(), "crds", "pav"), filepath.Join(c.Root(), "deploy", "pav"))
	if err == nil { // no Service leads to a process that is no pod
		err = kit.WebhooksAt(net.JoinHostPort(layout.HubIP, s.webhookPort), objects)
	}
	if err == nil {
		err = kit.ApplyObjects(ctx, in, objects)
	}
	if err != nil {
		return nil, err
	}
	control, err := c.WriteKubeconfig(ctx, s.cluster, kit.PodsNamespace, podsController)
	if err != nil {
		return nil, err
	}
	on := map[string]string{}
	for _, node := range s.nodes {
		if on[node], err = c.WriteNodeKubeconfig(ctx, s.cluster, kit.PodsNamespace, podsNode, node); err != nil {
			return nil, err
		}
	}
	out := s.processes(c.BinDir(), control, on)
	return out, start(ctx, c, out)
}

// processes are one for the cluster and one on each node, with the kubeconfig of the first and
// those of the others by node.
func (s podSite) processes(bin, control string, on map[string]string) []devcluster.Process {
	program := filepath.Join(bin, "pod-provisioner")
	out := []devcluster.Process{{Name: s.control, Machine: layout.Hub, Argv: append([]string{
		program, "--mode=controller", "--kubeconfig=" + control, "--namespace=" + kit.PodsNamespace, "--webhook-port=" + s.webhookPort,
	}, s.controlArgs...)}}
	for _, node := range s.nodes {
		out = append(out, devcluster.Process{Name: "pod-provisioner-" + node, Machine: node, Argv: append([]string{
			program, "--mode=node", "--node-name=" + node, "--kubeconfig=" + on[node],
		}, s.nodeArgs...)})
	}
	return out
}
