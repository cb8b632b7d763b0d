package moor

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"

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

// podsWebhookPort is where API servers have PavProvisioners checked.
const podsWebhookPort = "9443"

// ubuntu is the image of PaV's examples: what its commands use of it.
const ubuntu = "docker.io/library/ubuntu:20.04"

// deployPods deploys pods as volumes on the host cluster, and brings the image of its
// examples to the hosts.
func deployPods(ctx context.Context, c *devcluster.Cluster, clients kit.Clients, progress io.Writer) error {
	fmt.Fprintln(progress, "deploying pods as volumes on the host cluster")
	objects, err := kit.ReadManifests(filepath.Join(c.Root(), "crds", "pav"), filepath.Join(c.Root(), "deploy", "pav"))
	if err == nil { // the API servers of the bed reach no Services
		err = kit.WebhooksAt(net.JoinHostPort(layout.HubIP, podsWebhookPort), objects)
	}
	if err == nil {
		err = kit.ApplyObjects(ctx, clients.Host, objects)
	}
	if err != nil {
		return fmt.Errorf("pods as volumes: %w", err)
	}
	files, err := devcluster.BusyboxFiles(ctx)
	if err != nil {
		return err
	}
	files, err = devcluster.WithPrograms(ctx, files, map[string]string{"/bin/bash": "bash"})
	if err != nil {
		return fmt.Errorf("make the image %s: %w", ubuntu, err)
	}
	if err := c.LoadImage(ctx, "ubuntu", ociimage.Image{Names: []string{ubuntu}, Command: []string{"bash"}, Files: files}); err != nil {
		return err
	}
	control, err := c.WriteKubeconfig(ctx, devcluster.HostCluster, kit.PodsNamespace, podsController)
	if err != nil {
		return err
	}
	on := map[string]string{}
	for _, host := range c.Nodes() {
		if on[host], err = c.WriteNodeKubeconfig(ctx, devcluster.HostCluster, kit.PodsNamespace, podsNode, host); err != nil {
			return err
		}
	}
	return start(ctx, c, podProcesses(c, control, on))
}

// podProcesses are those of pods as volumes: one for the cluster, and one on each host; on has
// the kubeconfigs of these.
func podProcesses(c cluster, control string, on map[string]string) []devcluster.Process {
	program := filepath.Join(c.BinDir(), "pod-provisioner")
	out := []devcluster.Process{{Name: "pod-provisioner", Machine: layout.Hub, Argv: []string{
		program, "--mode=controller", "--kubeconfig=" + control, "--namespace=" + kit.PodsNamespace, "--webhook-port=" + podsWebhookPort,
		"--metrics-bind-address=:9111", "--health-probe-bind-address=:9112",
	}}}
	for _, host := range c.Nodes() {
		out = append(out, devcluster.Process{Name: "pod-provisioner-" + host, Machine: host, Argv: []string{
			program, "--mode=node", "--node-name=" + host, "--kubeconfig=" + on[host],
			"--metrics-bind-address=:9302", "--health-probe-bind-address=:9303",
		}})
	}
	return out
}
