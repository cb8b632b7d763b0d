package csiserver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestCode(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("attach volume v1 to node n1: %w", err) }
	for name, tc := range map[string]struct {
		err  error
		want codes.Code
	}{
		"nil":                        {nil, codes.OK},
		"invalid":                    {wrap(provisioner.ErrInvalid), codes.InvalidArgument},
		"not found":                  {wrap(provisioner.ErrNotFound), codes.NotFound},
		"exists":                     {wrap(provisioner.ErrExists), codes.AlreadyExists},
		"in use":                     {wrap(provisioner.ErrInUse), codes.FailedPrecondition},
		"exhausted":                  {wrap(provisioner.ErrExhausted), codes.ResourceExhausted},
		"out of range":               {wrap(provisioner.ErrOutOfRange), codes.OutOfRange},
		"precondition":               {wrap(provisioner.ErrPrecondition), codes.FailedPrecondition},
		"unsupported":                {wrap(provisioner.ErrUnsupported), codes.Unimplemented},
		"busy":                       {wrap(provisioner.ErrBusy), codes.Aborted},
		"token of a list":            {wrap(provisioner.ErrToken), codes.Aborted},
		"unavailable":                {wrap(provisioner.ErrUnavailable), codes.Unavailable},
		"deadline":                   {wrap(context.DeadlineExceeded), codes.DeadlineExceeded},
		"canceled":                   {wrap(context.Canceled), codes.Canceled},
		"anything else":              {wrap(errors.New("disk on fire")), codes.Internal},
		"unavailable, deadline":      {errors.Join(context.DeadlineExceeded, provisioner.ErrUnavailable), codes.Unavailable},
		"a status of another server": {wrap(status.Error(codes.DataLoss, "gone")), codes.DataLoss},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Code(tc.err); got != tc.want {
				t.Errorf("Code = %s, want %s", got, tc.want)
			}
			st := ToStatus(tc.err)
			if got := status.Code(st); got != tc.want {
				t.Errorf("ToStatus has code %s, want %s", got, tc.want)
			}
			if tc.err != nil && status.Convert(st).Message() != tc.err.Error() {
				t.Errorf("words lost: %q, want %q", status.Convert(st).Message(), tc.err)
			}
		})
	}
}

func TestFromStatusReadsToStatusBackwards(t *testing.T) {
	for _, row := range table {
		if errors.Is(row.err, provisioner.ErrToken) {
			continue // Aborted too (CSI spec "ListVolumes"), which is ErrBusy to all but those who list
		}
		err := FromStatus(ToStatus(fmt.Errorf("publish: %w", row.err)))
		want := row.err
		if errors.Is(want, provisioner.ErrInUse) {
			want = provisioner.ErrPrecondition // both are FailedPrecondition
		}
		if !errors.Is(err, want) {
			t.Errorf("%v came back as %v", row.err, err)
		}
		if provisioner.Uncertain(err) != provisioner.Uncertain(row.err) {
			t.Errorf("%v: certainty changed on the wire", row.err)
		}
	}
	if FromStatus(nil) != nil {
		t.Error("nil did not stay nil")
	}
	plain := errors.New("plain")
	if !errors.Is(FromStatus(plain), plain) {
		t.Error("a plain error did not come back")
	}
	if got := status.Code(FromStatus(status.Error(codes.Internal, "x"))); got != codes.Internal {
		t.Errorf("Internal came back as %s", got)
	}
}
