package kube

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper remembers how kinds are served. The mapper behind it goes through the versions
// of all groups at each question, and every read of a cache that is bounded to namespaces
// asks one: that was a tenth of the processor time of snap-host-controller, and much of
// its garbage.
type mapper struct {
	meta.RESTMapper
	found sync.Map // of question to *meta.RESTMapping
}

type question struct {
	kind     schema.GroupKind
	versions string
}

// newMapper asks an API server how kinds are served, when they are asked for first. Kinds
// that it does not serve yet are asked for again.
func newMapper(cfg *rest.Config, c *http.Client) (meta.RESTMapper, error) {
	dynamic, err := apiutil.NewDynamicRESTMapper(cfg, c)
	if err != nil {
		return nil, fmt.Errorf("ask the API server which kinds it serves: %w", err)
	}
	return &mapper{RESTMapper: dynamic}, nil
}

// RESTMapping implements meta.RESTMapper. Whether a kind has namespaces never changes
// while it is served, nor does the name of its resource.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	q := question{kind, strings.Join(versions, ",")}
	if known, ok := m.found.Load(q); ok {
		return known.(*meta.RESTMapping), nil
	}
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.found.Store(q, found)
	}
	return found, err
}
