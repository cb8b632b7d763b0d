package csiserver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// table is the one place where a kind of failure and a gRPC code meet. The
// order matters where an error wraps several kinds: the first row wins.
var table = []struct {
	err  error
	code codes.Code
}{
	{provisioner.ErrInvalid, codes.InvalidArgument},
	{provisioner.ErrNotFound, codes.NotFound},
	{provisioner.ErrExists, codes.AlreadyExists},
	{provisioner.ErrInUse, codes.FailedPrecondition},
	{provisioner.ErrExhausted, codes.ResourceExhausted},
	{provisioner.ErrOutOfRange, codes.OutOfRange},
	{provisioner.ErrPrecondition, codes.FailedPrecondition},
	{provisioner.ErrUnsupported, codes.Unimplemented},
	{provisioner.ErrBusy, codes.Aborted},
	{provisioner.ErrToken, codes.Aborted},
	{provisioner.ErrUnavailable, codes.Unavailable},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// Code is the gRPC code of err: OK for nil, the code of the sentinel it wraps,
// the code of a gRPC status it wraps, else Internal.
func Code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	for _, row := range table {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code()
	}
	return codes.Internal
}

// ToStatus turns the error of a handler into the gRPC status that goes over
// the wire, words kept. Nil stays nil.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return s.GRPCStatus().Err()
	}
	return status.Error(Code(err), err.Error())
}

// FromStatus is ToStatus read backwards, for those who call a gRPC service:
// the error keeps the words and wraps the sentinel (or context error) of its
// code. FailedPrecondition becomes ErrPrecondition, the wider of its two. The
// codes that CSI leaves uncertain (Unknown, Internal, ...) wrap none.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if s.Code() == codes.FailedPrecondition {
		return fmt.Errorf("%s: %w", s.Message(), provisioner.ErrPrecondition)
	}
	for _, row := range table {
		if row.code == s.Code() {
			return fmt.Errorf("%s: %w", s.Message(), row.err)
		}
	}
	return err
}
