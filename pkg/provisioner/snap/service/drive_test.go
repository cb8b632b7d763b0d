package service

import (
	"context"
	"errors"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestDriveWithoutEffect: that a service accepted a step proves nothing.
func TestDriveWithoutEffect(t *testing.T) {
	taken := 0
	err := Drive(t.Context(), func(context.Context) (*Step, error) {
		return NewStep("detach", func(context.Context) error { taken++; return nil }), nil
	})
	if !errors.Is(err, provisioner.ErrUnavailable) || taken != 1 {
		t.Errorf("got %v after the step was taken %d times", err, taken)
	}
}
