// Package served finds out whether an API server keeps every field that a program knows.
//
// An API server drops, without a word, what the schema of a CustomResourceDefinition does
// not have. A program that is newer than the CRDs, or under which others put theirs, as an
// operator does that ships CRDs of its own, would then forget what it writes down.
package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The times of Require. An API server publishes the schema of a CRD that was just applied
// after a second or two.
const (
	// Patience is how long Require waits for an API server that does not answer and for fields
	// that are missing, in all.
	Patience = time.Minute
	retry    = time.Second
)

// Cluster is one whose API server has to keep every field of Moor's kinds in its scheme.
// Kinds of others are their own business.
type Cluster struct {
	// Name is how messages name it: DPU cluster, or the like.
	Name string
	Of   interface {
		GetConfig() *rest.Config
		GetScheme() *runtime.Scheme
	}
}

// Require returns once the API servers keep every field, and an error that names the others
// if they do not within Patience; call it before the manager starts. While that runs, it is
// ended with the same error once an API server drops fields: what a controller cannot write
// down it must not do, and each of its writes would cost more of what stands there.
//
// An API server that does not answer is waited for as long, since the next question to it would
// end the program, and the program would be started anew later and later. It is no error here, nor
// is a kind that is not served at all: what needs it says so.
func Require(ctx context.Context, mgr ctrl.Manager, clusters ...Cluster) error {
	w := &watcher{}
	for _, of := range clusters {
		c, err := checkerOf(of.Name, of.Of.GetConfig(), of.Of.GetScheme())
		if err != nil {
			return err
		}
		if err := c.await(ctx); err != nil {
			return err
		}
		w.checkers = append(w.checkers, c)
	}
	if err := mgr.Add(w); err != nil {
		return fmt.Errorf("watch the schemas: %w", err)
	}
	return nil
}

// checker compares the kinds of one scheme with what one API server serves. One goroutine at
// a time uses it.
type checker struct {
	// cluster is how messages name it.
	cluster string
	client  openapi.Client
	kinds   map[schema.GroupVersion][]kind
	// compared is what was found for each group version, until its schema changes.
	compared map[schema.GroupVersion]result
}

// result is what is missing of the kinds of a schema, which the hash in its address names.
type result struct {
	address string
	missing []string
}

// checkerOf asks the API server of a cluster.
func checkerOf(cluster string, config *rest.Config, scheme *runtime.Scheme) (*checker, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the %s: %w", cluster, err)
	}
	return newChecker(cluster, client.OpenAPIV3(), scheme), nil
}

func newChecker(cluster string, client openapi.Client, scheme *runtime.Scheme) *checker {
	return &checker{cluster: cluster, client: client, kinds: kindsOf(scheme), compared: map[schema.GroupVersion]result{}}
}

// await waits for an API server that does not answer, and for fields that are missing.
func (c *checker) await(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	said := ""
	for {
		err := c.check()
		_, drops := errors.AsType[*DroppedError](err)
		if !drops && answered(err) {
			return nil
		}
		if said != err.Error() {
			said = err.Error()
			ctrl.Log.Info("waiting for the API server to answer, and to keep what is written", "reason", said)
		}
		select {
		case <-patience.Done():
			if drops || ctx.Err() != nil {
				return err
			}
			return nil
		case <-time.After(retry):
		}
	}
}

// answered reports whether an API server has answered the question that err is of, if with a
// refusal: one that shows no schemas to this account is not waited for.
func answered(err error) bool {
	refused, ok := errors.AsType[*apierrors.StatusError](err)
	return err == nil || ok && refused.Status().Code < http.StatusInternalServerError
}

// check asks the API server once, for little while no schema has changed. The error names
// the kinds and fields that it drops, and says what to do.
func (c *checker) check() error {
	paths, err := c.client.Paths()
	if err != nil {
		return fmt.Errorf("ask the %s for its schemas: %w", c.cluster, err)
	}
	var missing []string
	for gv, kinds := range c.kinds {
		at, found := paths["apis/"+gv.String()]
		if !found {
			continue
		}
		if c.compared[gv].address != at.ServerRelativeURL() {
			lacks, err := compare(at, kinds)
			if err != nil {
				return fmt.Errorf("ask the %s for the schema of %s: %w", c.cluster, gv, err)
			}
			c.compared[gv] = result{at.ServerRelativeURL(), lacks}
		}
		missing = append(missing, c.compared[gv].missing...)
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return &DroppedError{Cluster: c.cluster, Fields: missing}
}

// DroppedError names the fields that an API server drops, each as Kind.path.
type DroppedError struct {
	Cluster string
	Fields  []string
}

// Error says what to do, too.
func (e *DroppedError) Error() string {
	return fmt.Sprintf("the CRDs of the %s are older than this program, or another's: the API server drops %s; apply Moor's CRDs (crds/host in the host cluster, crds/dpu in the DPU cluster)",
		e.Cluster, strings.Join(shorten(e.Fields), ", "))
}

// named is how many fields a message names.
const named = 6

// shorten keeps a message readable.
func shorten(all []string) []string {
	if len(all) <= named {
		return all
	}
	return append(slices.Clone(all[:named]), fmt.Sprintf("and %d more", len(all)-named))
}

// compare lists the fields of the kinds that a schema lacks.
func compare(at openapi.GroupVersion, kinds []kind) ([]string, error) {
	text, err := at.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	var document document
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	var out []string
	for _, k := range kinds {
		if s := document.of(k.GroupVersionKind); s != nil {
			out = append(out, k.missing(s)...)
		}
	}
	return out, nil
}
