package localvendor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
)

// The parameters of a VolumeAttributesClass: how much all nodes together may do
// with the volume, reads and writes alike; 0 is no limit.
const (
	ParameterBytesPerSecond = "bytesPerSecond"
	ParameterIOPS           = "iops"
)

// limits are blocktarget.Limits as they are stored.
type limits struct {
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	IOPS           int64 `json:"iops,omitempty"`
}

// limitable reports whether limits take effect.
func (s *Storage) limitable() bool { return s.target != nil && s.target.Data != nil }

// Modify changes the limits of a volume, at once for those who have it open. See
// provisioner.Change.
func (s *Storage) Modify(ctx context.Context, id string, parameters map[string]string) error {
	if err := s.modify(ctx, id, parameters); err != nil {
		return fmt.Errorf("modify volume %q: %w", id, err)
	}
	return nil
}

func (s *Storage) modify(ctx context.Context, id string, parameters map[string]string) error {
	unlock, err := s.lock(id)
	if err != nil {
		return err
	}
	defer unlock()
	have, found, err := s.load(id)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the volume does not exist: %w", provisioner.ErrNotFound)
	}
	want, err := s.limitsOf(have.Limits, parameters)
	if err != nil {
		return err
	}
	if want != have.Limits {
		have.Limits = want
		if err := checkDirectory(have); err != nil {
			return err
		}
		if err := s.save(id, have); err != nil {
			return err
		}
	}
	// Also if nothing changed: an earlier call may not have reached the target.
	if s.limitable() {
		if err := s.target.Data.Adjust(ctx, id); err != nil {
			return fmt.Errorf("the limits hold from the next opening on, repeat to have them hold now: %w: %w", provisioner.ErrUnavailable, err)
		}
	}
	return nil
}

// limitsOf returns have with what the parameters say.
func (s *Storage) limitsOf(have limits, parameters map[string]string) (limits, error) {
	for _, k := range slices.Sorted(maps.Keys(parameters)) {
		into, least := &have.BytesPerSecond, int64(blocktarget.LeastBytesPerSecond)
		switch k {
		case ParameterBytesPerSecond:
		case ParameterIOPS:
			into, least = &have.IOPS, blocktarget.LeastIOPS
		default:
			return limits{}, fmt.Errorf("unknown parameter %q: only %s and %s can change: %w", k, ParameterBytesPerSecond, ParameterIOPS, provisioner.ErrInvalid)
		}
		n, err := strconv.ParseInt(parameters[k], 10, 64)
		if err != nil || n < 0 || n > 0 && n < least {
			return limits{}, fmt.Errorf("parameter %s is %q: a number from %d on is wanted, or 0 for no limit: %w", k, parameters[k], least, provisioner.ErrInvalid)
		}
		*into = n
	}
	if have != (limits{}) && !s.limitable() {
		return limits{}, fmt.Errorf("limits need a target, which this controller has not: %w", provisioner.ErrInvalid)
	}
	return have, nil
}
