package served

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"
	"sigs.k8s.io/yaml"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// clusters are the kinds that programs know, and the directories of their CRDs.
var clusters = map[string]struct {
	add  []func(*runtime.Scheme) error
	dirs []string
}{
	"host": {[]func(*runtime.Scheme) error{storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme, moorv1alpha1.AddPodsToScheme, pavv1alpha1.AddToScheme}, []string{"host", "pav"}},
	"dpu":  {[]func(*runtime.Scheme) error{storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme, moorv1alpha1.AddPodsToScheme, pavv1alpha1.AddToScheme}, []string{"dpu", "pav"}},
}

// server has schemas as an API server does.
type server struct {
	mu        sync.Mutex
	documents map[schema.GroupVersion]*document
	// changes is part of each address, fetched counts the schemas that were read.
	changes string
	fetched int
	fails   error
}

func (s *server) Paths() (map[string]openapi.GroupVersion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]openapi.GroupVersion{}
	for gv, d := range s.documents {
		out["apis/"+gv.String()] = published{s, gv, d}
	}
	return out, s.fails
}

type published struct {
	server *server
	gv     schema.GroupVersion
	*document
}

func (p published) ServerRelativeURL() string {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	return p.gv.String() + p.server.changes
}

func (p published) Schema(string) ([]byte, error) {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.server.fetched++
	return json.Marshal(p.document)
}

// become changes the server while it is asked.
func (s *server) become(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
}

// crds are the schemas of a cluster's CRDs.
func crds(t *testing.T, dirs []string) *server {
	t.Helper()
	out := &server{documents: map[schema.GroupVersion]*document{}}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "crds", dir, "*_*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			out.add(t, file)
		}
	}
	return out
}

func (s *server) add(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Group string
			Names struct{ Kind string }

			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema *node }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	for _, v := range crd.Spec.Versions {
		gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
		d := s.documents[gvk.GroupVersion()]
		if d == nil {
			d = &document{}
			d.Components.Schemas = map[string]*node{}
			s.documents[gvk.GroupVersion()] = d
		}
		v.Schema.OpenAPIV3Schema.Kinds = []schema.GroupVersionKind{gvk}
		d.Components.Schemas[gvk.Kind] = v.Schema.OpenAPIV3Schema
	}
}

func compared(t *testing.T, cluster string) (*checker, *server) {
	t.Helper()
	c := clusters[cluster]
	scheme, err := kube.NewScheme(c.add...)
	if err != nil {
		t.Fatal(err)
	}
	s := crds(t, c.dirs)
	return newChecker(cluster+" cluster", s, scheme), s
}

// TestOwnCRDs: Moor's CRDs have each field that its programs know, of each of its kinds.
func TestOwnCRDs(t *testing.T) {
	for name := range clusters {
		c, s := compared(t, name)
		if err := c.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for gv, kinds := range c.kinds {
			for _, k := range kinds {
				if s.documents[gv] == nil || s.documents[gv].of(k.GroupVersionKind) == nil {
					t.Errorf("%s: %s has no CRD", name, k.Kind)
				}
			}
		}
	}
}

// TestEachField: whichever field a CRD of Moor's lacks is noticed, on all levels.
func TestEachField(t *testing.T) {
	for name := range clusters {
		c, s := compared(t, name)
		tried := 0
		for gv, kinds := range c.kinds {
			for _, k := range kinds {
				for _, at := range places(s.documents[gv].of(k.GroupVersionKind), k.Kind) {
					if slices.ContainsFunc(foreign, func(begin string) bool { return strings.HasPrefix(at.path, begin) }) {
						continue
					}
					kept := at.of.Properties[at.field]
					delete(at.of.Properties, at.field)
					if got := k.missing(s.documents[gv].of(k.GroupVersionKind)); !slices.Equal(got, []string{at.path}) {
						t.Errorf("%s: %s is gone, told of are %v", name, at.path, got)
					}
					at.of.Properties[at.field] = kept
					tried++
				}
			}
		}
		if tried < 100 {
			t.Errorf("%s: %d fields tried", name, tried)
		}
	}
}

// foreign are beginnings of paths in types of other modules: Kubernetes' own describe what is there.
var foreign = []string{"SVVolumeAttachment.spec.", "SVVolumeAttachment.status.", "DPUVolume.spec.resources."}

// place is a field in a schema.
type place struct {
	of          *node
	field, path string
}

// places are the fields of a kind, but those that every object has, and what is in a type of
// another module.
func places(n *node, path string) []place {
	var out []place
	if n == nil || n.Open || strings.Contains(path, ".conditions[]") {
		return nil
	}
	for _, field := range slices.Sorted(maps.Keys(n.Properties)) {
		if below := path + "." + field; !slices.Contains([]string{"apiVersion", "kind", "metadata"}, field) || strings.Count(below, ".") > 1 {
			out = append(append(out, place{n, field, below}), places(n.Properties[field], below)...)
		}
	}
	return append(out, places(n.Items, path+"[]")...)
}

// TestWords: what is said names the first fields, and what to do.
func TestWords(t *testing.T) {
	c, s := compared(t, "host")
	volume := s.documents[storagev1alpha1.GroupVersion].Components.Schemas["DPUVolume"]
	delete(volume.Properties["status"].Properties, "lastGrant")
	delete(s.documents[moorv1alpha1.GroupVersion].Components.Schemas, "PowerControl")
	want := "the CRDs of the host cluster are older than this program, or another's: the API server drops DPUVolume.status.lastGrant; apply Moor's CRDs (crds/host in the host cluster, crds/dpu in the DPU cluster)"
	if err := c.check(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	volume.Properties["spec"].Properties = nil
	s.changes = "again"
	if err := c.check(); err == nil || !strings.Contains(err.Error(), ", and ") || strings.Count(err.Error(), "DPUVolume.") != named {
		t.Errorf("%v", err)
	}
	delete(s.documents, storagev1alpha1.GroupVersion)
	if err := c.check(); err != nil {
		t.Errorf("a group that is not served is what its users tell of: %v", err)
	}
}

// TestWatcher: a manager ends once fields are dropped, within a period, and for nothing else; a
// schema is read only when it has changed.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := compared(t, "dpu")
		w := &watcher{checkers: []*checker{c}}
		ended := make(chan error, 1)
		go func() { ended <- w.Start(t.Context()) }()
		runs := func(step string) {
			t.Helper()
			time.Sleep(10*period + time.Second) // of the bubble
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("%s: %v", step, err)
			default:
			}
		}
		runs("nothing changes")
		s.become(func() { s.fails = errors.New("no route to host") })
		runs("the API server does not answer")
		if s.fetched != len(s.documents) {
			t.Errorf("%d schemas were read, want each of %d once", s.fetched, len(s.documents))
		}
		s.become(func() { s.fails, s.changes = nil, "a description" })
		runs("a change that takes nothing away")
		s.become(func() {
			delete(s.documents[moorv1alpha1.GroupVersion].Components.Schemas["WriterClaim"].Properties["status"].Properties, "epoch")
			s.changes = "a field"
		})
		time.Sleep(period + time.Second) // of the bubble
		synctest.Wait()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "WriterClaim.status.epoch") {
				t.Errorf("%v", err)
			}
		default:
			t.Error("it goes on")
		}
	})
}

// TestAwait: an API server that answers late is waited for, and CRDs that are applied meanwhile; neither
// for ever.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		applied time.Duration
		fails   error
		// answers is until when it fails; 0: for ever.
		answers time.Duration
		takes   time.Duration
		refused bool
	}{
		"there":                       {applied: -1},
		"applied meanwhile":           {applied: 3500 * time.Millisecond, takes: 4 * time.Second},
		"never":                       {applied: 2 * Patience, takes: Patience, refused: true},
		"no answer, no opinion":       {applied: 2 * Patience, fails: errors.New("no route to host"), takes: Patience},
		"an answer meanwhile":         {applied: -1, fails: errors.New("no route to host"), answers: 3500 * time.Millisecond, takes: 4 * time.Second},
		"one that is not ready":       {applied: -1, fails: apierrors.NewInternalError(errors.New("etcd")), answers: 3500 * time.Millisecond, takes: 4 * time.Second},
		"an answer, and then applied": {applied: 5500 * time.Millisecond, fails: errors.New("no route to host"), answers: 3500 * time.Millisecond, takes: 6 * time.Second},
		"no right to ask":             {applied: 2 * Patience, fails: apierrors.NewForbidden(schema.GroupResource{}, "openapi", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				checker, s := compared(t, "host")
				checker.client = &changing{server: s, at: time.Now().Add(c.applied)}
				s.fails = c.fails
				if c.answers > 0 {
					time.AfterFunc(c.answers, func() { s.become(func() { s.fails = nil }) })
				}
				began := time.Now()
				err := checker.await(t.Context())
				if _, refused := errors.AsType[*DroppedError](err); refused != c.refused || time.Since(began) != c.takes {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestAwaitEnds: a program that is asked to end while it waits says for what it did.
func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checker, s := compared(t, "host")
		s.fails = errors.New("no route to host")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3500*time.Millisecond, cancel)
		began := time.Now()
		if err := checker.await(ctx); err == nil || !strings.Contains(err.Error(), "no route to host") || time.Since(began) != 3500*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// changing lacks a field until a moment.
type changing struct {
	*server
	at time.Time
}

func (c *changing) Paths() (map[string]openapi.GroupVersion, error) {
	status := c.documents[storagev1alpha1.GroupVersion].Components.Schemas["DPUVolume"].Properties["status"].Properties
	c.changes, status["lastGrant"] = "now", nil
	if time.Now().Before(c.at) {
		return c.server.Paths()
	}
	c.changes, status["lastGrant"] = "then", &node{Open: true}
	return c.server.Paths()
}
