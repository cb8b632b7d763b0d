// Package paths tells of the ways of a SNAP service's block devices to their storage:
// what the service has noticed of them, and whether storage answers when it is asked.
//
// It changes nothing but how often the service samples the queue depths of the devices
// that it is asked about.
package paths

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// SamplingPeriod is how often the queue depth of a device is sampled, which costs the
// service a message to each of its threads.
const SamplingPeriod = 100 * time.Millisecond

// Paths are the ways to storage of one SNAP service's devices.
type Paths struct{ service *service.Service }

// New returns those of a service. Nothing is called.
func New(s *service.Service) *Paths { return &Paths{s} }

// List is provisioner.DPU's Paths. It costs two calls, however many devices there are,
// one more if a device is no bdev or the service does not count, and one for each whose
// queue depth is not sampled yet.
func (p *Paths) List(ctx context.Context, devices []string) ([]provisioner.Path, error) {
	if len(devices) == 0 {
		return nil, nil
	}
	bdevs, stats, err := p.counted(ctx)
	if err != nil {
		return nil, err
	}
	there, err := p.there(ctx, devices, bdevs)
	if err != nil || len(there) == 0 {
		return nil, err
	}
	controllers, err := known(p.service.RPC.BdevNvmeGetControllers(ctx))
	if err != nil {
		return nil, service.Explain(err, service.Unread, "list the controllers of storage")
	}
	p.sample(ctx, unsampled(there, stats))
	return read(there, controllers, stats), nil
}

// counted are the bdevs that exist, by name, and what the service has counted of each:
// SPDK's counts are of every bdev, so that they need not be listed too.
func (p *Paths) counted(ctx context.Context) (map[string]bool, []snaprpc.BdevIOStat, error) {
	stats, err := p.service.RPC.BdevGetIostat(ctx, "")
	if snaprpc.IsMethodNotFound(err) {
		bdevs, err := p.bdevs(ctx)
		return bdevs, nil, err
	}
	if err != nil {
		return nil, nil, service.Explain(err, service.Unread, "count the operations of block devices")
	}
	names := make(map[string]bool, len(stats))
	for _, s := range stats {
		names[s.Name] = true
	}
	return names, stats, nil
}

// bdevs are those that exist, by name.
func (p *Paths) bdevs(ctx context.Context) (map[string]bool, error) {
	bdevs, err := p.service.RPC.BdevGetBdevs(ctx, "")
	if err != nil {
		return nil, service.Explain(err, service.Unread, "list the block devices")
	}
	names := make(map[string]bool, len(bdevs))
	for _, b := range bdevs {
		names[b.Name] = true
	}
	return names, nil
}

// Probe is provisioner.DPU's ProbePath.
func (p *Paths) Probe(ctx context.Context, device string) error {
	what := "ask the storage of device " + device
	bdevs, err := p.bdevs(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	there, err := p.there(ctx, []string{device}, bdevs)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if len(there) == 0 {
		return fmt.Errorf("%s: %w", what, provisioner.ErrNotFound)
	}
	controllers, err := p.service.RPC.BdevNvmeGetControllers(ctx)
	if err != nil {
		return service.Explain(err, service.Unread, "%s", what)
	}
	c, ok := controllerOf(device, controllers)
	if !ok {
		return fmt.Errorf("%s: it has no controller of its own: %w", what, provisioner.ErrUnsupported)
	}
	_, err = p.service.RPC.BdevNvmeGetControllerHealthInfo(ctx, c.Name)
	switch {
	case err == nil:
		return nil
	case snaprpc.IsMethodNotFound(err):
		return fmt.Errorf("%s: %w: %w", what, provisioner.ErrUnsupported, err)
	}
	// Whatever else the service says, storage did not answer.
	return fmt.Errorf("%s: %w: %w", what, provisioner.ErrUnavailable, err)
}

// there are the devices of those named that exist, in order and each once. A device that
// is none of the bdevs may be an fsdev, where the service has such.
func (p *Paths) there(ctx context.Context, devices []string, bdevs map[string]bool) ([]string, error) {
	named := slices.Compact(slices.Sorted(slices.Values(devices)))
	exists := maps.Clone(bdevs)
	absent := func(name string) bool { return !exists[name] }
	if slices.ContainsFunc(named, absent) {
		shared, err := known(p.service.RPC.FsdevGetFsdevs(ctx))
		if err != nil {
			return nil, service.Explain(err, service.Unread, "list the fsdevs")
		}
		for _, f := range shared {
			exists[f.Name] = true
		}
	}
	return slices.DeleteFunc(named, absent), nil
}

// known turns the refusal of a method that the service does not have into an answer that
// tells of nothing.
func known[T any](answer []T, err error) ([]T, error) {
	if snaprpc.IsMethodNotFound(err) {
		return nil, nil
	}
	return answer, err
}

// sample has queue depths sampled from now on. A failure is left to the next call: it
// leaves a depth that is not known, no more.
func (p *Paths) sample(ctx context.Context, devices []string) {
	for _, name := range devices {
		if err := p.service.RPC.BdevSetQDSamplingPeriod(ctx, name, SamplingPeriod); err != nil && !snaprpc.IsNotFound(err) {
			return // it would fail for the others, too
		}
	}
}
