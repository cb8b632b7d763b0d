package exposures

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Paths tells of the ways of the devices to their storage, as far as the SNAP services that
// have them answer, and which do, if with a refusal. The error joins what they said, and those
// that said nothing.
func (e *Exposures) Paths(ctx context.Context, devices []string) (paths []provisioner.Path, heard []string, failed error) {
	names, failed := e.services.names()
	told, errs := make([][]provisioner.Path, len(names)), make([]error, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() { told[i], errs[i] = e.services.get(name).Paths(ctx, devices) })
	}
	asking.Wait() // for all at once: one that hangs uses up the time of none but itself
	for i, name := range names {
		if errs[i] != nil {
			failed = errors.Join(failed, fmt.Errorf("SNAP service %s: %w", name, errs[i]))
		}
		if !errors.Is(errs[i], provisioner.ErrSilent) {
			paths, heard = append(paths, told[i]...), append(heard, name)
		}
	}
	return paths, heard, failed
}

// ProbePath has the service that has the device ask its storage to answer; see
// provisioner.DPU. ErrNotFound if no service has it.
func (e *Exposures) ProbePath(ctx context.Context, device string) error {
	names, err := e.services.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := e.services.get(name).ProbePath(ctx, device); !errors.Is(err, provisioner.ErrNotFound) {
			return err
		}
	}
	return fmt.Errorf("device %s: no SNAP service has it: %w", device, provisioner.ErrNotFound)
}
