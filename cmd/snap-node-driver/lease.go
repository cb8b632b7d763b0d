package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/watchdog"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/selffence"
)

// beatsPerLease is how many beats have to fit into a lease: one that is lost
// must not end it.
const beatsPerLease = 3

// leaseFlags say whether this DPU promises to stop by itself.
type leaseFlags struct {
	watchdog                 string
	duration, timeout, drain time.Duration
}

func (l *leaseFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&l.watchdog, "watchdog", "", "watchdog device of this DPU, such as /dev/watchdog: with it, and never without it, the DPU gives a lease; empty: none")
	fs.DurationVar(&l.duration, "lease-duration", 30*time.Second, "with --watchdog: how long the DPU shows single-writer volumes without a heartbeat that is answered; at least three periods of it")
	fs.DurationVar(&l.timeout, "watchdog-timeout", 30*time.Second, "with --watchdog: after what time without being fed it resets the DPU; longer than a restart of this process takes")
	fs.DurationVar(&l.drain, "lease-drain", 10*time.Second, "how long the storage may take over what it had received from a DPU that was reset, or from a SNAP service that ended")
}

func (l *leaseFlags) validate(beat time.Duration) error {
	switch {
	case l.drain < time.Second:
		return fmt.Errorf("--lease-drain is %s: at least 1s is needed", l.drain)
	case l.watchdog == "":
		return nil
	case !filepath.IsAbs(l.watchdog):
		return fmt.Errorf("--watchdog is %q: give an absolute path", l.watchdog)
	case l.duration < beatsPerLease*beat:
		return fmt.Errorf("--lease-duration is %s: at least %d times --heartbeat-period (%s) is needed, so that a lost beat does not end it", l.duration, beatsPerLease, beat)
	case l.timeout < time.Second || l.timeout%time.Second != 0:
		return fmt.Errorf("--watchdog-timeout is %s: watchdogs count whole seconds", l.timeout)
	}
	return nil
}

// ownTimeout bounds the read of this DPU's own object.
const ownTimeout = 5 * time.Second

// keeper returns what keeps the lease; nil if none is given and no process before
// this one has given one. Where that cannot be told, one may have.
func (l *leaseFlags) keeper(ctx context.Context, store *attachments.Store, shown *exposures.Exposures, changed func()) *selffence.Keeper {
	if l.watchdog == "" && !promised(ctx, store.DPU.Live, store.Node) {
		return nil
	}
	o := selffence.Options{
		Duration: l.duration, Drain: l.drain, Timeout: l.timeout, Now: bootTime,
		Shown: shown.ShowsSingleWriter, Withdraw: shown.WithdrawSingleWriter, Changed: changed,
	}
	if l.watchdog != "" {
		o.Open = func() (selffence.Watchdog, error) { return watchdog.Open(l.watchdog, l.timeout) }
	}
	return selffence.New(o)
}

// promised reports whether a lease of this DPU stands in its object.
func promised(ctx context.Context, live client.Reader, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, ownTimeout)
	defer cancel()
	own := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, live, types.NamespacedName{Name: node}, own)
	if err != nil {
		ctrl.Log.Info("whether this DPU has given a lease cannot be told: nothing is shown before a heartbeat is answered", "reason", err.Error())
		return true
	}
	return found && own.Status.DPU != nil && own.Status.DPU.Lease != nil
}

// keep does work while the lease is kept. The lease is kept longer than the work:
// what is done in its last seconds may show a volume.
func keep(ctx context.Context, k *selffence.Keeper, work func(context.Context) error) error {
	if k == nil {
		return work(ctx)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	keeping, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	kept := make(chan error, 1)
	go func() {
		err := k.Run(keeping)
		if err != nil {
			stop()
		}
		kept <- err
	}()
	err := work(working)
	release()
	return errors.Join(err, <-kept)
}

// bootTime counts while the machine is suspended, too.
func bootTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME, which Linux has since 2.6.39: %v", err))
	}
	return time.Duration(now.Nano())
}
