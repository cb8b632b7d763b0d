package devcluster

import (
	"context"
	"embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"golang.org/x/sync/errgroup"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/pki"
)

//go:embed files
var files embed.FS

// Names of the processes of the control planes.
const (
	EtcdProcess      = "etcd"
	SchedulerProcess = HostCluster + "-scheduler"
)

const etcdAddress = "127.0.0.1:2379"

// plane is the control plane of one cluster.
type plane struct {
	name string
	// port is the API server's, managerPort the controller-manager's, schedulerPort the
	// scheduler's.
	port, managerPort, schedulerPort int
	// services is the range of service addresses, service its first one, dns that of which
	// pods are told.
	services, service, dns string
	// controllers is the flag of the controller-manager.
	controllers string
	// managerRate is how many requests a second each part of the
	// controller-manager may send; "" is Kubernetes' default, 20.
	managerRate string
	// extender is the URL of the scheduler's extender, if it has one.
	extender string
	// kubelets are the machines that join by themselves. Without any there is no scheduler.
	kubelets []box
}

func (c *Cluster) planes() []plane {
	planes := []plane{{
		name: HostCluster, port: 6443, managerPort: 10257, schedulerPort: 10259,
		services: "10.77.64.0/20", service: "10.77.64.1", dns: "10.77.64.10",
		controllers: "*", extender: "http://127.0.0.1:8888", kubelets: c.kubeletsOf(HostCluster),
	}}
	for i, of := range c.DPUClusters() {
		prefix := fmt.Sprintf("10.77.%d.", 80+16*i)
		planes = append(planes, plane{
			name: of.Cluster, port: 7443 + 1000*i, managerPort: 10357 + 100*i, schedulerPort: 10359 + 100*i,
			services: prefix + "0/20", service: prefix + "1", dns: prefix + "10",
			controllers: c.dpuControllers(), kubelets: c.kubeletsOf(of.Cluster),
			// A vendor's claims come and go by the thousand here, several
			// writes each.
			managerRate: "200",
		})
	}
	return planes
}

// dpuControllers leaves out what waits for kubelets where none renews the lease of a DPU's node.
func (c *Cluster) dpuControllers() string {
	if c.meta.Options.DPUPods {
		return "*"
	}
	return "*,-node-lifecycle-controller,-taint-eviction-controller,-pod-garbage-collector-controller"
}

func (p plane) pkiDir() string { return filepath.Join(layout.DataDir, "pki", p.name) }

func (p plane) server() string {
	return "https://" + net.JoinHostPort(layout.HubIP, strconv.Itoa(p.port))
}

func (p plane) apiserver() string { return p.name + "-apiserver" }

func (p plane) controllerManager() string { return p.name + "-controller-manager" }

func (p plane) scheduler() string { return p.name + "-scheduler" }

func (p plane) schedulerConfig() string {
	return filepath.Join(layout.DataDir, p.scheduler()+".yaml")
}

func (p plane) pki() pki.Cluster {
	keys := pki.Cluster{
		Server: p.server(),
		Clients: []pki.Identity{
			{File: "admin", Name: "admin", Groups: []string{"system:masters"}},
			{File: "controller-manager", Name: "system:kube-controller-manager"},
			{File: "scheduler", Name: "system:kube-scheduler"},
		},
		Servers: []pki.Identity{{
			File: "apiserver", Name: "kube-apiserver",
			Hosts: []string{layout.HubIP, "127.0.0.1", p.service, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		}},
	}
	for _, b := range p.kubelets {
		user, groups := "system:node:"+b.name, []string{"system:nodes"}
		keys.Clients = append(keys.Clients, pki.Identity{File: "kubelet-" + b.name, Name: user, Groups: groups})
		keys.Servers = append(keys.Servers, pki.Identity{File: "kubelet-" + b.name, Name: user, Groups: groups, Hosts: []string{b.ip, b.name}})
	}
	return keys
}

func auditPolicy() string { return filepath.Join(layout.DataDir, "audit.yaml") }

func (c *Cluster) writeControlPlaneFiles() error {
	if err := render("audit.yaml", auditPolicy(), nil); err != nil {
		return err
	}
	for _, p := range c.planes() {
		if len(p.kubelets) == 0 {
			continue
		}
		values := map[string]string{"Kubeconfig": filepath.Join(p.pkiDir(), "scheduler.kubeconfig"), "Extender": p.extender}
		if err := render("scheduler.yaml", p.schedulerConfig(), values); err != nil {
			return err
		}
	}
	return nil
}

// render writes an embedded file with its blanks filled in.
func render(name, path string, values map[string]string) error {
	t, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return fmt.Errorf("read the template %s: %w", name, err)
	}
	var text strings.Builder
	if err := t.Option("missingkey=error").Execute(&text, values); err != nil {
		return fmt.Errorf("fill in the template %s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// startControlPlanes starts all and returns when all API servers are ready.
func (c *Cluster) startControlPlanes(ctx context.Context, log *reporter) error {
	if err := c.Start(ctx, etcd(c.meta.Options.AsShipped())); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range c.planes() {
		g.Go(func() error {
			if err := c.Start(ctx, p.apiserverProcess(c.AuditLog(p.name))); err != nil {
				return err
			}
			if err := c.awaitAPI(ctx, p); err != nil {
				return err
			}
			log.say("API server of the %s cluster is ready", p.name)
			if err := c.Start(ctx, p.controllerManagerProcess()); err != nil || len(p.kubelets) == 0 {
				return err
			}
			return c.Start(ctx, p.schedulerProcess())
		})
	}
	return g.Wait()
}

// etcd is the one store of all clusters. Without sync a crash of this machine
// may lose what it acknowledged, which no test needs.
func etcd(sync bool) Process {
	const peer = "http://127.0.0.1:2380"
	argv := []string{
		"etcd", "--name=bed", "--data-dir=" + filepath.Join(layout.DataDir, "etcd"),
		"--listen-client-urls=http://" + etcdAddress, "--advertise-client-urls=http://" + etcdAddress,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=bed=" + peer,
		"--log-level=warn",
	}
	if !sync {
		argv = append(argv, "--unsafe-no-fsync")
	}
	return Process{Name: EtcdProcess, Machine: layout.Hub, Argv: argv}
}

func (p plane) apiserverProcess(audit string) Process {
	key := func(name string) string { return filepath.Join(p.pkiDir(), name) }
	return Process{Name: p.apiserver(), Machine: layout.Hub, Argv: []string{
		"kube-apiserver",
		"--etcd-servers=http://" + etcdAddress, "--etcd-prefix=/" + p.name,
		"--advertise-address=" + layout.HubIP, "--bind-address=0.0.0.0", "--secure-port=" + strconv.Itoa(p.port),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + key("ca.crt"), "--tls-cert-file=" + key("apiserver.crt"), "--tls-private-key-file=" + key("apiserver.key"),
		"--kubelet-client-certificate=" + key("apiserver-kubelet.crt"), "--kubelet-client-key=" + key("apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + key("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key("sa.pub"),
		"--service-account-signing-key-file=" + key("sa.key"), "--service-cluster-ip-range=" + p.services,
		"--requestheader-client-ca-file=" + key("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + key("front-proxy.crt"), "--proxy-client-key-file=" + key("front-proxy.key"),
		"--allow-privileged=true", "--profiling=false", "--endpoint-reconciler-type=master-count",
		// Webhooks in pods are asked at the addresses of the pods: there is no kube-proxy.
		"--enable-aggregator-routing=true",
		"--audit-policy-file=" + auditPolicy(), "--audit-log-path=" + audit, "--audit-log-maxsize=4096",
	}}
}

func (p plane) controllerManagerProcess() Process {
	config := filepath.Join(p.pkiDir(), "controller-manager.kubeconfig")
	argv := []string{
		"kube-controller-manager",
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--service-account-private-key-file=" + filepath.Join(p.pkiDir(), "sa.key"),
		"--root-ca-file=" + filepath.Join(p.pkiDir(), "ca.crt"), "--use-service-account-credentials=true",
		"--leader-elect=false", "--allocate-node-cidrs=false", "--controllers=" + p.controllers,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(p.managerPort), "--profiling=false",
	}
	if p.managerRate != "" {
		argv = append(argv, "--kube-api-qps="+p.managerRate, "--kube-api-burst="+p.managerRate)
	}
	return Process{Name: p.controllerManager(), Machine: layout.Hub, Argv: argv}
}

func (p plane) schedulerProcess() Process {
	return Process{Name: p.scheduler(), Machine: layout.Hub, Argv: []string{
		"kube-scheduler", "--config=" + p.schedulerConfig(), "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(p.schedulerPort),
	}}
}
