// Package metricsauth shows metrics to those who may read them: it asks an API server who a token is of
// (TokenReview), and whether that account may read the path (SubjectAccessReview).
//
// controller-runtime has such a filter. It rests on k8s.io/apiserver, which links CEL and a client of every kind
// of Kubernetes: 8 to 28 MB of each program (decision 0005).
package metricsauth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// How long an answer of the API server counts; all are those of controller-runtime's filter.
const (
	// knownFor: who a token is of, or that it is of no one.
	knownFor = time.Minute
	// allowedFor and refusedFor: whether an account may read a path.
	allowedFor, refusedFor = 5 * time.Minute, 30 * time.Second
	// patience is how long the API server may take over one.
	patience = 10 * time.Second
)

// remembered is how many answers of each sort are kept: there are few readers, and any number of wrong tokens.
const remembered = 1024

// Filter asks the API server of a configuration, whose account may make both reviews. What is not answered is
// refused with 500, a token that is of no one with 401, and an account without the right with 403.
func Filter(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the kinds of reviews: %w", err)
		}
	}
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), meta.RESTScopeRoot)
	api, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("reach the API server about who reads metrics: %w", err)
	}
	return newReaders(api, clock.RealClock{}).filter, nil
}

// readers are those who ask for metrics.
type readers struct {
	api client.Client
	// tokens has the account of each token that was reviewed, nil if it is of no one; rights whether that
	// may read a path.
	tokens, rights *cache.LRUExpireCache
}

// token stands for one without holding it.
type token [sha256.Size]byte

// access is what a token is to be good for.
type access struct {
	of         token
	verb, path string
}

func newReaders(api client.Client, c clock.Clock) *readers {
	return &readers{api: api, tokens: cache.NewLRUExpireCacheWithClock(remembered, c), rights: cache.NewLRUExpireCacheWithClock(remembered, c)}
}

func (r *readers) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		code, words, err := r.judge(req)
		if err != nil {
			log.Error(err, "Metrics are refused to a reader", "path", req.URL.Path)
		}
		if code != http.StatusOK {
			http.Error(w, words, code)
			return
		}
		next.ServeHTTP(w, req)
	}), nil
}

// judge says whether a request is answered, by a status of HTTP; if not, with words for who asks, and if that
// is for lack of an answer with the reason.
func (r *readers) judge(req *http.Request) (code int, words string, err error) {
	secret := bearer(req)
	if secret == "" {
		return http.StatusUnauthorized, "Unauthorized: a bearer token is needed", nil
	}
	ctx, cancel := context.WithTimeout(req.Context(), patience)
	defer cancel()
	of := token(sha256.Sum256([]byte(secret)))
	user, err := r.account(ctx, of, secret)
	switch {
	case err != nil:
		return http.StatusInternalServerError, "Authentication failed", err
	case user == nil:
		return http.StatusUnauthorized, "Unauthorized: the token is of no account", nil
	}
	allowed, err := r.may(ctx, user, access{of, strings.ToLower(req.Method), req.URL.Path})
	switch {
	case err != nil:
		return http.StatusInternalServerError, fmt.Sprintf("Authorization for user %s failed", user.Username), err
	case !allowed:
		return http.StatusForbidden, fmt.Sprintf("Authorization denied for user %s", user.Username), nil
	}
	return http.StatusOK, "", nil
}

// bearer is the token of a request, "" if it has none.
func bearer(req *http.Request) string {
	scheme, secret, _ := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// account is who a token is of, nil if it is of no one.
func (r *readers) account(ctx context.Context, of token, secret string) (*authenticationv1.UserInfo, error) {
	if known, ok := r.tokens.Get(of); ok {
		return known.(*authenticationv1.UserInfo), nil
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: secret}}
	if err := r.api.Create(ctx, review); err != nil {
		return nil, fmt.Errorf("ask who a token is of: %w", err)
	}
	var user *authenticationv1.UserInfo
	if review.Status.Authenticated {
		user = &review.Status.User
	}
	if review.Status.Error == "" { // else it may be the API server that could not tell
		r.tokens.Add(of, user, knownFor)
	}
	return user, nil
}

// may says whether the account that a token is of has a right.
func (r *readers) may(ctx context.Context, user *authenticationv1.UserInfo, what access) (bool, error) {
	if known, ok := r.rights.Get(what); ok {
		return known.(bool), nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: what.verb, Path: what.path},
	}}
	for key, values := range user.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	if err := r.api.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask whether %s may %s %s: %w", user.Username, what.verb, what.path, err)
	}
	allowed, lasts := review.Status.Allowed && !review.Status.Denied, refusedFor
	if allowed {
		lasts = allowedFor
	}
	r.rights.Add(what, allowed, lasts)
	return allowed, nil
}
