package exposures

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Options of Exposures.
type Options struct {
	// Root holds a directory for each SNAP service, Open is how one is called by
	// its socket.
	Root string
	Open func(socket string) provisioner.DPU
	// Boot tells this boot of the machine from the others; "" if it is not known.
	Boot string
	// Attachments are this DPU's.
	Attachments *attachments.Store
	// Timeout bounds what is done for the lease as a whole; each call to a service
	// has a deadline of its own within it.
	Timeout time.Duration
	// Withdrawn is told when something was withdrawn; nil: nothing is.
	Withdrawn func()
	// Ways is what is known of the ways to the storage. Nil: none is watched.
	Ways Ways
	// Drain is how long the storage may take over what it has received.
	Drain time.Duration
	// Clock is the machine's if nil.
	Clock clock.PassiveClock
}

// Ways is what is known of the ways of devices to their storage.
type Ways interface {
	// Loss names the loss of a device's way that there is, or was within Drain; "" if there is
	// none.
	Loss(device string) string
	// Seen is told how SNAP has the way of a device before it is shown, and when it is taken away:
	// what watches ways looks at times only.
	Seen(path provisioner.Path)
	// Anew is told that what was sent for a device before now does not reach the storage any more.
	Anew(device string)
}

// unwatched are ways that are not watched.
type unwatched struct{}

func (unwatched) Loss(string) string    { return "" }
func (unwatched) Seen(provisioner.Path) {}
func (unwatched) Anew(string)           {}

// Exposures is what one DPU shows to its host. Safe for concurrent use.
type Exposures struct {
	Work
	services    services
	drain       drain
	attachments *attachments.Store
	timeout     time.Duration
	withdrawn   func()
	ways        Ways
}

// New returns the exposures of a DPU; it asks no service yet.
func New(o Options) *Exposures {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Withdrawn == nil {
		o.Withdrawn = func() {}
	}
	if o.Ways == nil {
		o.Ways = unwatched{}
	}
	return &Exposures{
		withdrawn:   o.Withdrawn,
		ways:        o.Ways,
		drain:       drain{bound: o.Drain, clock: o.Clock, asked: map[string]time.Time{}},
		services:    services{root: o.Root, boot: o.Boot, open: o.Open, used: map[string]provisioner.DPU{}},
		attachments: o.Attachments, timeout: o.Timeout,
	}
}

// Listing is what all SNAP services show together.
type Listing struct {
	// Exposures and the names of their services, by device.
	Exposures map[string]provisioner.Exposure
	Service   map[string]string
	// Complete: there is a service, and every one answered.
	Complete bool
}

// Service returns the SNAP service called name, whether it answers or not.
func (e *Exposures) Service(name string) provisioner.DPU { return e.services.get(name) }

// List asks every SNAP service once what it shows. The error joins those of the
// services that did not answer; what the others show is listed all the same.
func (e *Exposures) List(ctx context.Context) (Listing, error) { return e.services.list(ctx) }

// Withdraw takes a device away from the host. Nil means that every SNAP service
// has confirmed it.
func (e *Exposures) Withdraw(ctx context.Context, device string) error {
	return e.WithdrawFrom(ctx, "", device)
}

// WithdrawFrom is Withdraw for a device that only the service called known can
// show: others need not answer.
func (e *Exposures) WithdrawFrom(ctx context.Context, known, device string) error {
	err := e.services.withdraw(ctx, device, known)
	if err == nil {
		e.withdrawn()
	}
	return err
}

// Tidy has every SNAP service remove what withdrawals have left, and adds up what it says.
func (e *Exposures) Tidy(ctx context.Context) (removed, left int, err error) {
	names, err := e.services.names()
	for _, name := range names {
		gone, still, failed := e.services.get(name).Tidy(ctx)
		removed, left, err = removed+gone, left+still, errors.Join(err, failed)
	}
	return removed, left, err
}

// Functions adds up the functions of all SNAP services, by type; ready is whether
// there is a service and all answered.
func (e *Exposures) Functions(ctx context.Context) (total map[provisioner.FunctionType]provisioner.FunctionCount, ready bool) {
	names, err := e.services.names()
	ready = err == nil && len(names) > 0
	total = map[provisioner.FunctionType]provisioner.FunctionCount{}
	for _, name := range names {
		all, err := e.services.get(name).Functions(ctx)
		ready = ready && err == nil
		for _, c := range all {
			sum := total[c.Type]
			total[c.Type] = provisioner.FunctionCount{Type: c.Type, Total: sum.Total + c.Total, Free: sum.Free + c.Free}
		}
	}
	return total, ready
}
