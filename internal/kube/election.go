package kube

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Election are the flags of a process with replicas of which one works at a time. That one
// holds a lease.
type Election struct {
	LeaderElect    bool
	LeaseNamespace string
	// LeaseDuration is how long a lease counts that is not renewed, RenewDeadline how long one
	// may fail to renew it before it ends, and RetryPeriod the time between two attempts.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// Bind adds the flags to fs, with the names of Kubernetes' sidecars and the defaults of its
// own controllers. use says what the lease is for.
func (e *Election) Bind(fs *pflag.FlagSet, use string) {
	fs.BoolVar(&e.LeaderElect, "leader-elect", false, use)
	fs.StringVar(&e.LeaseNamespace, "leader-election-namespace", "", "namespace of that lease; empty: the pod's own, which a process outside of a pod does not have")
	fs.DurationVar(&e.LeaseDuration, "leader-election-lease-duration", 15*time.Second, "how long that lease counts when it is not renewed: another replica takes over so long after one has died, or up to 4.4 retry periods later")
	fs.DurationVar(&e.RenewDeadline, "leader-election-renew-deadline", 10*time.Second, "how long renewing the lease may fail before the process ends; less than the lease counts")
	fs.DurationVar(&e.RetryPeriod, "leader-election-retry-period", 2*time.Second, "time between two attempts to take or renew the lease; less than 1/1.2 of the renew deadline")
}

// Validate says which flag is wrong. The bounds are client-go's.
func (e Election) Validate() error {
	switch jittered := time.Duration(leaderelection.JitterFactor * float64(e.RetryPeriod)); {
	case !e.LeaderElect:
		return nil
	case e.RetryPeriod <= 0:
		return fmt.Errorf("--leader-election-retry-period is %s: it has to be positive", e.RetryPeriod)
	case e.RenewDeadline <= jittered:
		return fmt.Errorf("--leader-election-renew-deadline is %s: more than %g of --leader-election-retry-period (%s) is needed", e.RenewDeadline, leaderelection.JitterFactor, e.RetryPeriod)
	case e.LeaseDuration <= e.RenewDeadline || e.LeaseDuration%time.Second != 0:
		return fmt.Errorf("--leader-election-lease-duration is %s: whole seconds are needed, and more than --leader-election-renew-deadline (%s)", e.LeaseDuration, e.RenewDeadline)
	}
	return nil
}

// endsWithin is how long a manager that ends waits for what works under its lease, all of which is
// canceled, before it gives the lease back all the same; on the test bed it took 10 to 130 ms. By
// default it waits for 30 s for what hangs, after which a kubelet kills the process, so that no
// other replica works before the lease has run out too.
const endsWithin = 3 * time.Second

// Of has a manager with these options take the lease. When the manager ends it gives the
// lease back, so the process has to end with it.
func (e Election) Of(lease string, o ctrl.Options) ctrl.Options {
	if !e.LeaderElect {
		return o
	}
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, lease, e.LeaseNamespace
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &e.LeaseDuration, &e.RenewDeadline, &e.RetryPeriod
	o.LeaderElectionReleaseOnCancel, o.GracefulShutdownTimeout = true, ptr.To(endsWithin)
	return o
}
