package redfish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"
)

// mostBody is the longest answer that is read of a BMC, in bytes.
const mostBody = 4 << 20

// guard lets requests through to one host alone: a BMC names the addresses of its
// resources, and one that names another's, or redirects there, would have the password sent
// to it.
type guard struct {
	host string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || r.URL.Host != g.host || r.URL.User != nil {
		return nil, fmt.Errorf("it names resources of another machine: %s", r.URL.Host)
	}
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = limited{io.LimitReader(resp.Body, mostBody), resp.Body}
	return resp, nil
}

type limited struct {
	io.Reader
	io.Closer
}

// failure is an error whose text has no credential; err is for its causes alone.
type failure struct {
	words, text string
	cause, err  error
}

// Error implements error.
func (f *failure) Error() string {
	if f.cause == nil {
		return f.words + ": " + f.text
	}
	return f.words + ": " + f.cause.Error() + ": " + f.text
}

// Is reports whether the cause, or what was found beneath it, is the target. The error
// itself is not handed out: its text may hold what the BMC has echoed.
func (f *failure) Is(target error) bool {
	return errors.Is(f.cause, target) || errors.Is(f.err, target)
}

// flat are the errors behind one about a collection, which wraps none, and whose text is
// encoded so that a secret in it could not be found.
func flat(err error) error {
	var many *schemas.CollectionError
	if !errors.As(err, &many) {
		return err
	}
	var out []error
	for _, path := range slices.Sorted(maps.Keys(many.Failures)) {
		out = append(out, fmt.Errorf("%s: %w", path, flat(many.Failures[path])))
	}
	return errors.Join(out...)
}

// status is the HTTP status of an error answer; 0 if there was none.
func status(err error) int {
	var answered *schemas.Error
	if errors.As(err, &answered) {
		return answered.HTTPReturnedStatusCode
	}
	return 0
}

// unanswered reports whether there was no answer, or no whole one in time.
func unanswered(err error) bool {
	var network net.Error
	var request *url.Error
	return errors.As(err, &network) || errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, io.ErrUnexpectedEOF)
}

// mostText is how much is told of what a BMC has said, in bytes.
const mostText = 300

// redact is a text without the secrets, and short.
func redact(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "..."
	}
	return strings.Join(strings.Fields(text), " ")
}
