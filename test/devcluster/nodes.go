package devcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/machine"
)

const containerdSocket = "/run/containerd/containerd.sock"

func containerdName(machine string) string { return "containerd-" + machine }

func kubeletName(machine string) string { return "kubelet-" + machine }

// startContainerd starts the runtime of a machine and loads the images into it.
func (c *Cluster) startContainerd(ctx context.Context, b box) error {
	if err := c.writeNodeFiles(b); err != nil {
		return err
	}
	err := c.Start(ctx, Process{
		Name: containerdName(b.name), Machine: b.name,
		Argv: []string{"containerd", "--config", "/etc/containerd/config.toml"},
	})
	if err != nil {
		return err
	}
	if err := c.awaitContainerd(ctx, b.name); err != nil {
		return err
	}
	for _, image := range imageFiles() {
		if err := c.importImage(ctx, b.name, image); err != nil {
			return err
		}
	}
	return nil
}

// writeNodeFiles writes what the machine sees below /etc.
func (c *Cluster) writeNodeFiles(b box) error {
	name, p := b.name, c.plane(b.cluster)
	frequency, sync := "10s", "1m"
	if c.meta.Options.KubeletProfile == ProfileFast {
		frequency, sync = "1s", "5s"
	}
	values := map[string]string{
		"PodSubnet":       b.pods,
		"CgroupRoot":      "/" + layout.CgroupParent + "/" + name,
		"ClusterDNS":      p.dns,
		"StatusFrequency": frequency, "SyncFrequency": sync,
	}
	kubernetes := layout.MachinePath(name, "/etc/kubernetes")
	for template, path := range map[string]string{
		"containerd.toml": filepath.Join(layout.MachinePath(name, "/etc/containerd"), "config.toml"),
		"cni.conflist":    filepath.Join(layout.MachinePath(name, "/etc/cni"), "net.d", "10-bridge.conflist"),
		"kubelet.yaml":    filepath.Join(kubernetes, "kubelet.yaml"),
	} {
		if err := render(template, path, values); err != nil {
			return err
		}
	}
	for target, source := range map[string]string{
		"ca.crt": "ca.crt", "kubelet.kubeconfig": "kubelet-" + name + ".kubeconfig",
		"kubelet.crt": "kubelet-" + name + ".crt", "kubelet.key": "kubelet-" + name + ".key",
	} {
		text, err := os.ReadFile(filepath.Join(p.pkiDir(), source))
		if err != nil {
			return fmt.Errorf("give keys to %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(kubernetes, target), text, 0o600); err != nil {
			return fmt.Errorf("give keys to %s: %w", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(kubernetes, "resolv.conf"), []byte("nameserver "+p.dns+"\n"), 0o644); err != nil {
		return fmt.Errorf("write resolv.conf of %s: %w", name, err)
	}
	return nil
}

// criVersion is the call by which a kubelet finds out at its start whether the
// runtime is there; it ends if the answer is no (Kubernetes'
// staging/src/k8s.io/cri-api/pkg/apis/runtime/v1/api.proto).
const criVersion = "/runtime.v1.RuntimeService/Version"

// awaitContainerd waits until the runtime answers a kubelet: its socket takes
// connections before that.
func (c *Cluster) awaitContainerd(ctx context.Context, name string) error {
	m, err := running(name)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix:"+machine.Root(m.Identity.PID, containerdSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: tryEvery, Multiplier: 1, MaxDelay: tryEvery}}))
	if err != nil {
		return fmt.Errorf("reach containerd of %s: %w", name, err)
	}
	defer func() { _ = conn.Close() }()
	return c.await(ctx, "containerd of "+name, []string{containerdName(name)}, func(ctx context.Context) error {
		// Question and answer are not read, so any message will do.
		return conn.Invoke(ctx, criVersion, &emptypb.Empty{}, &emptypb.Empty{})
	})
}

// importImage is repeated until it succeeds: the socket of containerd is there
// before all its services are.
func (c *Cluster) importImage(ctx context.Context, name, image string) error {
	what := "image " + filepath.Base(image) + " in " + name
	return c.await(ctx, what, []string{containerdName(name)}, func(ctx context.Context) error {
		_, err := c.Exec(ctx, name, "ctr", "-n", "k8s.io", "images", "import", image)
		return err
	})
}

// join makes a machine a node of its cluster.
func (c *Cluster) join(ctx context.Context, b box) error {
	if b.cluster == "" {
		return c.registerDPU(ctx, b)
	}
	return c.Start(ctx, Process{Name: kubeletName(b.name), Machine: b.name, Argv: []string{
		"kubelet", "--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
		"--hostname-override=" + b.name, "--node-ip=" + b.ip, "--root-dir=/var/lib/kubelet", "--v=2",
	}})
}

// registerDPU makes the node object of a DPU that has no kubelet.
func (c *Cluster) registerDPU(ctx context.Context, b box) error {
	p := c.plane(c.clusterOf(b.name))
	client, err := c.client(p.name)
	if err != nil {
		return err
	}
	return c.await(ctx, "node object of "+b.name, []string{p.apiserver()}, func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   b.name,
			Labels: map[string]string{corev1.LabelHostname: b.name, corev1.LabelOSStable: "linux"},
		}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			node, err = client.CoreV1().Nodes().Get(ctx, b.name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		node.Status = dpuStatus(b.name, b.ip, metav1.Now())
		if node, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		// The API server taints every new node; nothing else takes that away here.
		node.Spec.Taints = nil
		_, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

func dpuStatus(name, ip string, now metav1.Time) corev1.NodeStatus {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("8"),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return corev1.NodeStatus{
		Capacity:    resources,
		Allocatable: resources,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: ip},
			{Type: corev1.NodeHostName, Address: name},
		},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "MachineRuns",
			Message: "the test bed has booted this DPU", LastHeartbeatTime: now, LastTransitionTime: now,
		}},
	}
}
