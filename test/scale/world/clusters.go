package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/procs"
	"github.com/moor-storage/moor/test/etcdkv"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/scale/fleet"
)

// Clusters are the two API servers, with what deploy/ gives them.
type Clusters struct {
	*apiserver.Clusters
	// Unlimited reach both as an administrator, as often as is wanted.
	Unlimited fleet.Clients

	dir string
	// settings are those of Go's runtime in the API servers.
	settings []string
	// restarted are API servers that RestartAPIServer started.
	restarted []*server
}

// auditPolicy has who reads and writes what, of all but the fleet, which is the
// administrator. Of DPUStorageNodes the body is kept: it tells the copy of a beat
// from a condition; of events too: it tells what they are about.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  userGroups: [system:masters]
- level: None
  nonResourceURLs: ["/*"]
- level: Request
  verbs: [patch]
  resources: [{group: storage.moor.dev, resources: [dpustoragenodes/status]}]
- level: Request
  verbs: [create]
  resources: [{group: "", resources: [events]}, {group: events.k8s.io, resources: [events]}]
- level: Metadata
`

// etcdQuota is enough for 5,000 hosts, which etcd's own default of 2 GiB is not.
const etcdQuota = "8589934592"

// Garbage is when API servers without watch caches, and their etcds, collect theirs.
const Garbage = "GOGC=400"

// serverSettings are what Go's runtime is told in API servers and their etcds. They collect garbage
// for GOMEMLIMIT: two API servers of 5,000 hosts then fit into 24 GiB beside all else, and those of
// 1,000 hosts need a third of it. Without watch caches they hold a gigabyte and make each list anew:
// of the samples in the 25 functions that they were in most, a third were the collection of garbage,
// so it waits for longer.
func serverSettings(watchCaches bool) []string {
	if watchCaches {
		return []string{"GOMEMLIMIT=7GiB"}
	}
	return []string{"GOMEMLIMIT=7GiB", Garbage}
}

// with starts what inherits its environment, with more in it.
func with(settings []string, start func() error) (err error) {
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		if old, was := os.LookupEnv(name); was {
			defer func() { err = errors.Join(err, os.Setenv(name, old)) }()
		} else {
			defer func() { err = errors.Join(err, os.Unsetenv(name)) }()
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set %s for the API servers: %w", name, err)
		}
	}
	return start()
}

// Start starts the API servers; what they need lies in dir. Without watch caches they hold
// hardly any object in memory, and each list and watch is served by etcd, which is not compacted
// then: no bookmark carries a watch of a kind that does not change past a compaction, and each would
// list anew. Stop must be called even after an error.
func Start(ctx context.Context, dir string, watchCaches bool) (*Clusters, error) {
	out := &Clusters{dir: dir, settings: serverSettings(watchCaches), Clusters: &apiserver.Clusters{}}
	policy := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return out, fmt.Errorf("write the audit policy: %w", err)
	}
	configure := func(cluster string, env *envtest.Environment) {
		env.ControlPlane.GetAPIServer().Configure().
			Set("audit-policy-file", policy).Set("audit-log-path", out.AuditLog(cluster)).Set("audit-log-maxsize", "16384").
			Set("watch-cache", strconv.FormatBool(watchCaches))
		if !watchCaches {
			env.ControlPlane.GetAPIServer().Configure().Set("etcd-compaction-interval", "0")
		}
		env.ControlPlane.Etcd = &envtest.Etcd{}
		env.ControlPlane.Etcd.Configure().Set("quota-backend-bytes", etcdQuota).Set("log-outputs", filepath.Join(dir, cluster+"-etcd.log"))
	}
	err := with(out.settings, func() (err error) {
		out.Clusters, err = apiserver.Start(ctx, configure)
		return err
	})
	if err != nil {
		return out, err
	}
	if out.Unlimited.Host, err = unlimited(out.HostConfig); err != nil {
		return out, err
	}
	if out.Unlimited.DPU, err = unlimited(out.DPUConfig); err != nil {
		return out, err
	}
	err = out.deploy(ctx)
	return out, err
}

func unlimited(config *rest.Config) (client.WithWatch, error) {
	scheme, err := kit.Scheme()
	if err != nil {
		return nil, err
	}
	free := rest.CopyConfig(config)
	free.QPS = -1
	out, err := client.NewWithWatch(free, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to an API server: %w", err)
	}
	return out, nil
}

// deploy applies accounts and rights, the vendor, and the policy.
func (c *Clusters) deploy(ctx context.Context) error {
	root, err := devcluster.FindRoot()
	if err != nil {
		return err
	}
	in := func(parts ...string) string { return filepath.Join(append([]string{root, "deploy"}, parts...)...) }
	if err := kit.Apply(ctx, c.Unlimited.Host, in("host"), in("host", "attach-controller"), in("scheduler", "rbac.yaml"), in("examples", "storage.yaml")); err != nil {
		return fmt.Errorf("host cluster: %w", err)
	}
	if err := kit.Apply(ctx, c.Unlimited.DPU, in("dpu")); err != nil {
		return fmt.Errorf("DPU cluster: %w", err)
	}
	return nil
}

// AuditLog is the path of a cluster's.
func (c *Clusters) AuditLog(cluster string) string { return filepath.Join(c.dir, cluster+"-audit.log") }

// Address is where the API server of a cluster listens.
func (c *Clusters) Address(cluster string) string {
	serving := c.Server(cluster).ControlPlane.GetAPIServer().SecureServing
	return serving.HostPort()
}

// KubeconfigFile writes one that acts as an account and reaches the API server at an
// address, and returns its path.
func (c *Clusters) KubeconfigFile(cluster, account, address string) (string, error) {
	config, err := c.Kubeconfig(cluster, account)
	if err != nil {
		return "", err
	}
	config = bytes.ReplaceAll(config, []byte(c.Address(cluster)), []byte(address))
	path := filepath.Join(c.dir, cluster+"-"+account+".kubeconfig")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return "", fmt.Errorf("write a kubeconfig: %w", err)
	}
	return path, nil
}

// Processes are the numbers of the API servers and of etcd, by cluster and program.
func (c *Clusters) Processes() (map[string]int, error) {
	children, err := procs.Children(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("find the API servers: %w", err)
	}
	out := map[string]int{}
	for _, cluster := range []string{apiserver.Host, apiserver.DPU} {
		plane := c.Server(cluster).ControlPlane
		for program, mark := range map[string]string{
			"kube-apiserver": "--secure-port=" + plane.GetAPIServer().SecureServing.Port, "etcd": "--listen-client-urls=" + plane.Etcd.URL.String(),
		} {
			for _, pid := range children {
				if argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(argv), mark+"\x00") {
					out[program+"-"+cluster] = pid
				}
			}
		}
	}
	if len(out) != 4 {
		return out, errors.New("find the API servers: not all run")
	}
	return out, nil
}

// store is the etcd of a cluster.
func (c *Clusters) store(cluster string) *etcdkv.Client {
	return &etcdkv.Client{URL: c.Server(cluster).ControlPlane.Etcd.URL.String()}
}
