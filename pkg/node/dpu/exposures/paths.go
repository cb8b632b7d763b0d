package exposures

import (
	"context"
	"errors"
	"fmt"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Paths tells of the ways of the devices to their storage, as far as the SNAP services that
// have them answer. The error joins those of the services that do not.
func (e *Exposures) Paths(ctx context.Context, devices []string) ([]provisioner.Path, error) {
	names, failed := e.services.names()
	var out []provisioner.Path
	for _, name := range names {
		all, err := e.services.get(name).Paths(ctx, devices)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("SNAP service %s: %w", name, err))
		}
		out = append(out, all...)
	}
	return out, failed
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
