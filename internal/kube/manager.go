package kube

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// CacheSyncTimeout is how long a controller waits for the first list of what it
// watches before its process gives up. With 5,000 hosts and 50,000 attachments
// the caches took 91 seconds on two busy cores, which controller-runtime's two
// minutes hardly cover: a process that gives up and lists all again makes the
// overload of an API server worse.
const CacheSyncTimeout = 10 * time.Minute

// Flags are the flags that every controller process has, with DPF's names.
type Flags struct {
	MetricsBindAddress     string
	HealthProbeBindAddress string
	Concurrency            int
	SyncPeriod             time.Duration
	Metrics
	Election
	Rate
}

// Bind adds the flags to fs.
func (f *Flags) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.MetricsBindAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	fs.StringVar(&f.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns them off")
	f.Metrics.Bind(fs)
	f.Election.Bind(fs, "take a lease before working, so that replicas of this process never work at once")
	fs.IntVar(&f.Concurrency, "concurrency", 15, "objects worked on at once, per kind")
	fs.DurationVar(&f.SyncPeriod, "sync-period", 10*time.Hour, "how often every object is looked at again without cause")
	f.Rate.Bind(fs)
}

// Validate says which flag is wrong.
func (f *Flags) Validate() error {
	if f.Concurrency < 1 {
		return fmt.Errorf("--concurrency is %d: at least 1 is needed", f.Concurrency)
	}
	return cmp.Or(f.Metrics.Validate(), f.Election.Validate(), f.Rate.Validate())
}

// NewManager builds a manager with the flags, health checks and one cache for
// the namespaces given (none: all). It is alive as soon as it runs, and ready once
// its caches are filled.
func NewManager(cfg *rest.Config, scheme *runtime.Scheme, flags Flags, lease string, caches cache.Options) (ctrl.Manager, error) {
	caches.SyncPeriod = &flags.SyncPeriod
	informers := &Informers{}
	mgr, err := ctrl.NewManager(cfg, flags.Election.Of(lease, ctrl.Options{
		Scheme:                 scheme,
		MapperProvider:         NewMapper,
		Cache:                  caches,
		NewCache:               informers.New,
		Metrics:                flags.Metrics.Options(flags.MetricsBindAddress),
		HealthProbeBindAddress: flags.HealthProbeBindAddress,
		Controller:             config.Controller{MaxConcurrentReconciles: flags.Concurrency, CacheSyncTimeout: CacheSyncTimeout},
	}))
	if err != nil {
		return nil, fmt.Errorf("build the manager: %w", err)
	}
	if mgr, err = Ending(mgr); err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add health check: %w", err)
	}
	// One that waits for its lease is ready without its controllers: a rolling
	// update replaces the leader only then.
	ready := informers.Ready
	if !flags.LeaderElect {
		ready = informers.ReadyWith(mgr, flags.Election)
	}
	return mgr, addReadyz(mgr, "caches", ready)
}

// AddCluster adds another cluster to a manager, which is ready only once the caches
// of this one are filled too.
func AddCluster(mgr ctrl.Manager, name string, cfg *rest.Config, scheme *runtime.Scheme, caches cache.Options) (cluster.Cluster, error) {
	informers := &Informers{Cluster: name}
	c, err := cluster.New(cfg, func(o *cluster.Options) {
		o.Scheme, o.Cache, o.NewCache, o.MapperProvider = scheme, caches, informers.New, NewMapper
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the %s: %w", name, err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("start with the %s: %w", name, err)
	}
	return c, addReadyz(mgr, strings.ToLower(strings.ReplaceAll(name, " ", "-"))+"-caches", informers.Ready)
}

// addReadyz adds a check to /readyz. Its error is the answer of /readyz/<name>
// alone: /readyz withholds it. So each new error is logged.
func addReadyz(mgr ctrl.Manager, name string, ready func() error) error {
	var last atomic.Pointer[string]
	check := func(*http.Request) error {
		err, text := ready(), "ready"
		if err != nil {
			text = err.Error()
		}
		if was := last.Swap(&text); was == nil || *was != text {
			mgr.GetLogger().Info("asked whether it is ready", "check", name, "answer", text)
		}
		return err
	}
	if err := mgr.AddReadyzCheck(name, check); err != nil {
		return fmt.Errorf("add readiness check %s: %w", name, err)
	}
	return nil
}
