// Package metered measures the calls to a storage platform.
//
// It decorates the interfaces of a platform and changes nothing that they do: a
// nil one stays nil, results and errors pass through untouched.
package metered

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// buckets are the upper bounds in seconds of the latency histogram: from one
// millisecond to one minute, the longest deadline of a platform call.
var buckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60}

// codes are the values of the label "code", and the errors they stand for.
var codes = []struct {
	err  error
	code string
}{
	{context.Canceled, "Canceled"},
	{context.DeadlineExceeded, "DeadlineExceeded"},
	{provisioner.ErrInvalid, "Invalid"},
	{provisioner.ErrNotFound, "NotFound"},
	{provisioner.ErrExists, "Exists"},
	{provisioner.ErrInUse, "InUse"},
	{provisioner.ErrExhausted, "Exhausted"},
	{provisioner.ErrOutOfRange, "OutOfRange"},
	{provisioner.ErrPrecondition, "Precondition"},
	{provisioner.ErrUnsupported, "Unsupported"},
	{provisioner.ErrToken, "Token"},
	{provisioner.ErrBusy, "Busy"},
	{provisioner.ErrUnavailable, "Unavailable"},
}

// code returns the label of an error: "OK", the name of the kind of failure,
// or "Unknown".
func code(err error) string {
	if err == nil {
		return "OK"
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "Unknown"
}

// Recorder measures calls into the histogram
// moor_platform_call_seconds{platform,face,verb,code}.
type Recorder struct {
	seconds *prometheus.HistogramVec
	clock   clock.PassiveClock
}

// New registers the histogram with reg and returns its Recorder. A histogram
// that is registered already is used as it is, so several platforms of one
// process may share it.
func New(reg prometheus.Registerer, c clock.PassiveClock) (*Recorder, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "moor_platform_call_seconds",
		Help:    "Seconds that a call to a storage platform took, by platform, face, verb and how it ended.",
		Buckets: buckets,
	}, []string{"platform", "face", "verb", "code"})
	if err := reg.Register(seconds); err != nil {
		var already prometheus.AlreadyRegisteredError
		if !errors.As(err, &already) {
			return nil, fmt.Errorf("register moor_platform_call_seconds: %w", err)
		}
		have, ok := already.ExistingCollector.(*prometheus.HistogramVec)
		if !ok {
			return nil, fmt.Errorf("register moor_platform_call_seconds: %w", err)
		}
		seconds = have
	}
	return &Recorder{seconds: seconds, clock: c}, nil
}
