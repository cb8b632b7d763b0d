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
//
// It knows how needed kinds are served without a question. A question without an answer ends a
// program that starts: the plugin of a host, and the driver of a DPU, which have to come up while
// the API server is away, since what they withdraw and unmount needs none.
type mapper struct {
	meta.RESTMapper
	found sync.Map // of question to *meta.RESTMapping
}

type question struct {
	kind     schema.GroupKind
	versions string
}

// NewMapper asks an API server how kinds are served that are not needed ones, when they are
// asked for first. Kinds that it does not serve yet are asked for again.
func NewMapper(cfg *rest.Config, c *http.Client) (meta.RESTMapper, error) {
	dynamic, err := apiutil.NewDynamicRESTMapper(cfg, c)
	if err != nil {
		return nil, fmt.Errorf("ask the API server which kinds it serves: %w", err)
	}
	m := &mapper{RESTMapper: dynamic}
	for _, of := range needed {
		for _, name := range of.kinds {
			kind := of.WithKind(name)
			resource, _ := meta.UnsafeGuessKindToResource(kind) // tests compare it with the CRDs, and with API servers
			m.found.Store(question{kind.GroupKind(), kind.Version}, &meta.RESTMapping{Resource: resource, GroupVersionKind: kind, Scope: of.scope})
		}
	}
	return m, nil
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
