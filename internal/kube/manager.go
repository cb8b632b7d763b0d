package kube

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
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
	LeaderElect            bool
	Concurrency            int
	SyncPeriod             time.Duration
	Rate
}

// Bind adds the flags to fs.
func (f *Flags) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.MetricsBindAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	fs.StringVar(&f.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns them off")
	fs.BoolVar(&f.LeaderElect, "leader-elect", false, "take a lease before working, so that replicas of this process never work at once")
	fs.IntVar(&f.Concurrency, "concurrency", 15, "objects worked on at once, per kind")
	fs.DurationVar(&f.SyncPeriod, "sync-period", 10*time.Hour, "how often every object is looked at again without cause")
	f.Rate.Bind(fs)
}

// Validate says which flag is wrong.
func (f *Flags) Validate() error {
	if f.Concurrency < 1 {
		return fmt.Errorf("--concurrency is %d: at least 1 is needed", f.Concurrency)
	}
	return f.Rate.Validate()
}

// NewManager builds a manager with the flags, health checks and one cache for
// the namespaces given (none: all).
func NewManager(cfg *rest.Config, scheme *runtime.Scheme, flags Flags, lease string, caches cache.Options) (ctrl.Manager, error) {
	caches.SyncPeriod = &flags.SyncPeriod
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         caches,
		Metrics:                       metricsserver.Options{BindAddress: flags.MetricsBindAddress},
		HealthProbeBindAddress:        flags.HealthProbeBindAddress,
		LeaderElection:                flags.LeaderElect,
		LeaderElectionID:              lease,
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{MaxConcurrentReconciles: flags.Concurrency, CacheSyncTimeout: CacheSyncTimeout},
	})
	if err != nil {
		return nil, fmt.Errorf("build the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add readiness check: %w", err)
	}
	return mgr, nil
}
