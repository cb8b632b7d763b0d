package metricsauth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// server is an API server that knows the token "good" and what its account may read, and counts reviews.
type server struct {
	clock   *clocktesting.FakeClock
	handler http.Handler
	// unknown and unasked are what the two reviews answer.
	unknown, unasked error
	known, allowed   bool
	// trouble is what the review of a token says of itself.
	trouble string
	// denied: though it is allowed by one authorizer, another denies it.
	denied         bool
	tokens, rights int
	asked          authorizationv1.SubjectAccessReviewSpec
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{clock: clocktesting.NewFakeClock(time.Unix(0, 0)), known: true, allowed: true}
	api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{Create: s.create})
	handler, err := newReaders(api, s.clock).filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("metrics"))
	}))
	if err != nil {
		t.Fatal(err)
	}
	s.handler = handler
	return s
}

func (s *server) create(ctx context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("a review that may take for ever")
	}
	switch o := o.(type) {
	case *authenticationv1.TokenReview:
		s.tokens++
		o.Status.Authenticated = s.known && o.Spec.Token == "good"
		o.Status.Error = s.trouble
		o.Status.User = authenticationv1.UserInfo{Username: "reader", UID: "1", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
		return s.unknown
	case *authorizationv1.SubjectAccessReview:
		s.rights++
		s.asked = o.Spec
		o.Status.Allowed, o.Status.Denied = s.allowed, s.denied
		return s.unasked
	}
	return errors.New("no review")
}

// get reads /metrics with an Authorization header.
func (s *server) get(authorization string) (code int, body string) {
	req := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

func TestFilter(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		change func(*server)
		code   int
		words  string
	}{
		"one who may":                  {"Bearer good", nil, http.StatusOK, "metrics"},
		"by a scheme in small letters": {"bearer  good ", nil, http.StatusOK, "metrics"},
		"no token":                     {"", nil, http.StatusUnauthorized, "a bearer token is needed"},
		"an empty token":               {"Bearer ", nil, http.StatusUnauthorized, "a bearer token is needed"},
		"a password":                   {"Basic good", nil, http.StatusUnauthorized, "a bearer token is needed"},
		"a token of no one":            {"Bearer bad", nil, http.StatusUnauthorized, "the token is of no account"},
		"without the right":            {"Bearer good", func(s *server) { s.allowed = false }, http.StatusForbidden, "denied for user reader"},
		"denied":                       {"Bearer good", func(s *server) { s.denied = true }, http.StatusForbidden, "denied for user reader"},
		"no answer about the token":    {"Bearer good", func(s *server) { s.unknown = errors.New("no answer") }, http.StatusInternalServerError, "Authentication failed"},
		"no answer about the right":    {"Bearer good", func(s *server) { s.unasked = errors.New("no answer") }, http.StatusInternalServerError, "for user reader failed"},
	} {
		s := newServer(t)
		if c.change != nil {
			c.change(s)
		}
		if code, body := s.get(c.header); code != c.code || !strings.Contains(body, c.words) {
			t.Errorf("%s: %d %q, want %d and %q", name, code, body, c.code, c.words)
		}
	}
}

// TestAsks: the right is asked for of the account as the API server knows it.
func TestAsks(t *testing.T) {
	s := newServer(t)
	s.get("Bearer good")
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "reader", UID: "1", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"},
	}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Error(diff)
	}
}

// TestRemembers: answers count for as long as is said, whatever they are; no answer does not count at all.
func TestRemembers(t *testing.T) {
	for name, c := range map[string]struct {
		header         string
		change         func(*server)
		after          time.Duration
		tokens, rights int // reviews in all
	}{
		"at once":                      {"Bearer good", nil, 0, 1, 1},
		"within a minute":              {"Bearer good", nil, time.Minute - 1, 1, 1},
		"after a minute":               {"Bearer good", nil, time.Minute + 1, 2, 1},
		"within five minutes":          {"Bearer good", nil, 5*time.Minute - 1, 2, 1},
		"after five minutes":           {"Bearer good", nil, 5*time.Minute + 1, 2, 2},
		"refused, at once":             {"Bearer good", func(s *server) { s.allowed = false }, 30*time.Second - 1, 1, 1},
		"refused, after half a minute": {"Bearer good", func(s *server) { s.allowed = false }, 30*time.Second + 1, 1, 2},
		"of no one, within a minute":   {"Bearer bad", nil, time.Minute - 1, 1, 0},
		"of no one, after a minute":    {"Bearer bad", nil, time.Minute + 1, 2, 0},
		"of no one, or so it seems":    {"Bearer bad", func(s *server) { s.trouble = "no answer of a webhook" }, 0, 2, 0},
		"no answer about the token":    {"Bearer good", func(s *server) { s.unknown = errors.New("no answer") }, 0, 2, 0},
		"no answer about the right":    {"Bearer good", func(s *server) { s.unasked = errors.New("no answer") }, 0, 1, 2},
	} {
		s := newServer(t)
		if c.change != nil {
			c.change(s)
		}
		s.get(c.header)
		s.clock.Step(c.after)
		s.get(c.header)
		if s.tokens != c.tokens || s.rights != c.rights {
			t.Errorf("%s: %d reviews of tokens and %d of rights, want %d and %d", name, s.tokens, s.rights, c.tokens, c.rights)
		}
	}
}

// TestOthers: what one token is good for, another is not, nor is it for another path or verb.
func TestOthers(t *testing.T) {
	s := newServer(t)
	s.get("Bearer good")
	if code, _ := s.get("Bearer bad"); code != http.StatusUnauthorized {
		t.Errorf("another token: %d", code)
	}
	s.allowed = false
	for _, req := range []*http.Request{httptest.NewRequest(http.MethodPost, "/metrics", http.NoBody), httptest.NewRequest(http.MethodGet, "/other", http.NoBody)} {
		req.Header.Set("Authorization", "Bearer good")
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, req)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s %s: %d", req.Method, req.URL.Path, w.Code)
		}
	}
}
