package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/scheduler/refused"
	"github.com/moor-storage/moor/pkg/scheduler/state"
	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
)

// source is a fixed index.
type source struct {
	index *state.Index
	err   error
}

func (s *source) Index() *state.Index { return s.index }
func (s *source) Ready() error        { return s.err }

// cluster has volume a attached on n1 and pre-emulated on n2, volume b nowhere,
// nodes of every sort, and one that has lost its way to the storage of volume data.
func cluster() *state.Index {
	f := statetest.New()
	f.Volume("a").Volume("b").Volume("c").VolumeOf("data", "v").VolumeOf("log", "v").Lost("lost", "data")
	f.Attachment("a", "n1", statetest.Attached).Attachment("a", "n2", statetest.PreEmulated)
	f.Attachment("c", "full", statetest.Attached).Attachment("c", "dead", statetest.Attached)
	f.Node("n1", 4).Node("n2", 4).Node("full", 0).Dead("dead").Drained("drained")
	return f.Index()
}

func handler(t testing.TB, s Source, change func(*Options)) *Handler {
	t.Helper()
	o := Options{Source: s, Refused: refused.New(clock.RealClock{}, Keep), Registerer: prometheus.NewPedanticRegistry()}
	if change != nil {
		change(&o)
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func post(h http.Handler, path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, body))
	return w
}

// ask posts a body and decodes a 200.
func ask[T any](t testing.TB, h http.Handler, path, body string) T {
	t.Helper()
	w := post(h, path, strings.NewReader(body))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%s: code %d, %s: %s", path, w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	var out T
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&out); err != nil {
		t.Fatalf("%s answered %q: %v", path, w.Body, err)
	}
	return out
}

// question is what a scheduler with nodeCacheCapable asks about a pod with
// the claims given.
func question(claims []string, nodes ...string) string {
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: statetest.Pod(claims...), NodeNames: &nodes})
	if err != nil {
		panic(err)
	}
	return string(body)
}

const (
	noDPU = "the node has no DPUStorageNode: it has no DPU, or snap-csi-plugin does not run there"
	dead  = "DPU dpu-dead is not alive (Silent)"
	lost  = "DPU dpu-lost has lost its way to the storage of "
	full  = "the DPU has 0 vf functions free, and the pod's volumes need 1 more"
)

func TestFilter(t *testing.T) {
	h := handler(t, &source{index: cluster()}, nil)
	all := []string{"n1", "n2", "full", "dead", "none"}
	for name, test := range map[string]struct {
		claims []string
		nodes  []string
		want   extenderv1.ExtenderFilterResult
	}{
		"warm on two": {[]string{"a"}, all, extenderv1.ExtenderFilterResult{
			NodeNames:   &[]string{"n1", "n2"},
			FailedNodes: extenderv1.FailedNodesMap{"full": full}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"dead": dead, "none": noDPU},
		}},
		"attached where it is full": {[]string{"c"}, all, extenderv1.ExtenderFilterResult{
			NodeNames:   &[]string{"n1", "n2", "full"},
			FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"dead": dead, "none": noDPU},
		}},
		"no node passes": {[]string{"a"}, []string{"none"}, extenderv1.ExtenderFilterResult{
			NodeNames:   &[]string{},
			FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"none": noDPU},
		}},
		"its path is lost": {[]string{"data"}, []string{"n1", "lost"}, extenderv1.ExtenderFilterResult{
			NodeNames:   &[]string{"n1"},
			FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"lost": lost + "volume volume-data: no path"},
		}},
		"a path of its vendor is lost": {[]string{"a", "log"}, []string{"n1", "lost"}, extenderv1.ExtenderFilterResult{
			NodeNames:   &[]string{"n1"},
			FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"lost": lost + `vendor "v" (volume volume-data: no path)`},
		}},
		"a path of another vendor is lost": {[]string{"a"}, []string{"n1", "lost"}, extenderv1.ExtenderFilterResult{
			NodeNames:   &[]string{"n1", "lost"},
			FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{},
		}},
		"no nodes": {[]string{"a"}, []string{}, extenderv1.ExtenderFilterResult{NodeNames: &[]string{}, FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{}}},
		"being drained, and warm": {[]string{"a"}, []string{"n1", "drained"}, extenderv1.ExtenderFilterResult{
			NodeNames:   &[]string{"n1"},
			FailedNodes: extenderv1.FailedNodesMap{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"drained": "DPU dpu-drained is being drained: new BFB"},
		}},
		"being drained, no volumes": {nil, []string{"drained"}, extenderv1.ExtenderFilterResult{NodeNames: &[]string{"drained"}}},
		"no volumes":                {nil, all, extenderv1.ExtenderFilterResult{NodeNames: &all}},
		"unknown claim":             {[]string{"x"}, all, extenderv1.ExtenderFilterResult{NodeNames: &all}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask[extenderv1.ExtenderFilterResult](t, h, "/filter", question(test.claims, test.nodes...))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPrioritize(t *testing.T) {
	h := handler(t, &source{index: cluster()}, nil)
	all := []string{"none", "n2", "full", "dead", "n1"}
	for name, test := range map[string]struct {
		claims []string
		nodes  []string
		want   extenderv1.HostPriorityList
	}{
		"attached and pre-emulated":       {[]string{"a"}, all, extenderv1.HostPriorityList{{Host: "n2", Score: 7}, {Host: "n1", Score: 10}}},
		"only nodes that were asked for":  {[]string{"a"}, []string{"n2"}, extenderv1.HostPriorityList{{Host: "n2", Score: 7}}},
		"two volumes, one of them warm":   {[]string{"a", "b"}, all, extenderv1.HostPriorityList{{Host: "n2", Score: 3}, {Host: "n1", Score: 5}}},
		"warm on a dead node counts none": {[]string{"c"}, all, extenderv1.HostPriorityList{{Host: "full", Score: 10}}},
		"cold everywhere":                 {[]string{"b"}, all, extenderv1.HostPriorityList{}},
		"no volumes":                      {nil, all, extenderv1.HostPriorityList{}},
		"unknown claim":                   {[]string{"x"}, all, extenderv1.HostPriorityList{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask[extenderv1.HostPriorityList](t, h, "/prioritize", question(test.claims, test.nodes...))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The body in testdata is one that kube-scheduler 1.35 sends for a pod of a
// StatefulSet.
func TestRealBody(t *testing.T) {
	body, err := os.ReadFile("testdata/filter.json")
	if err != nil {
		t.Fatal(err)
	}
	h := handler(t, &source{index: cluster()}, nil)
	filtered := ask[extenderv1.ExtenderFilterResult](t, h, "/filter", string(body))
	if diff := cmp.Diff(&[]string{"n1", "n2"}, filtered.NodeNames); diff != "" {
		t.Error(diff)
	}
	scored := ask[extenderv1.HostPriorityList](t, h, "/prioritize", string(body))
	if diff := cmp.Diff(extenderv1.HostPriorityList{{Host: "n1", Score: 10}, {Host: "n2", Score: 7}}, scored); diff != "" {
		t.Error(diff)
	}
}

// A scheduler without nodeCacheCapable sends whole nodes and wants them back.
func TestWholeNodes(t *testing.T) {
	var nodes corev1.NodeList
	for _, name := range []string{"n1", "dead", "n2"} {
		nodes.Items = append(nodes.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kept": name}}})
	}
	h := handler(t, &source{index: cluster()}, nil)
	for _, claims := range [][]string{{"a"}, nil} {
		body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: statetest.Pod(claims...), Nodes: &nodes})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(nodes.Items)
		scores := extenderv1.HostPriorityList{}
		if claims != nil {
			want = slices.Delete(want, 1, 2)
			scores = extenderv1.HostPriorityList{{Host: "n1", Score: 10}, {Host: "n2", Score: 7}}
		}
		filtered := ask[extenderv1.ExtenderFilterResult](t, h, "/filter", string(body))
		if filtered.NodeNames != nil {
			t.Errorf("whole nodes were asked about, and names came back: %v", *filtered.NodeNames)
		}
		if diff := cmp.Diff(want, filtered.Nodes.Items); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(scores, ask[extenderv1.HostPriorityList](t, h, "/prioritize", string(body))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	good := question([]string{"a"}, "n1")
	for name, test := range map[string]struct {
		ready error
		path  string
		body  io.Reader
		code  int
		words string
	}{
		"empty":              {nil, "/filter", strings.NewReader(""), 400, "the body is no ExtenderArgs"},
		"broken":             {nil, "/prioritize", strings.NewReader(`{"Pod":`), 400, "the body is no ExtenderArgs"},
		"two questions":      {nil, "/filter", strings.NewReader(good + good), 400, "the body is no ExtenderArgs"},
		"no object":          {nil, "/filter", strings.NewReader(`[]`), 400, "the body is no ExtenderArgs"},
		"wrong type":         {nil, "/filter", strings.NewReader(`{"Pod":{},"NodeNames":7}`), 400, "NodeNames"},
		"no pod":             {nil, "/filter", strings.NewReader(`{"NodeNames":["n1"]}`), 400, "the body has no Pod"},
		"no nodes":           {nil, "/prioritize", strings.NewReader(`{"Pod":{}}`), 400, "neither NodeNames nor Nodes"},
		"too large":          {nil, "/filter", strings.NewReader(question(nil, strings.Repeat("n", 5000))), 413, "nodeCacheCapable"},
		"broken off":         {nil, "/filter", iotest.ErrReader(errors.New("reset by peer")), 408, "reset by peer"},
		"before it is ready": {errors.New("the index is not complete"), "/filter", strings.NewReader(good), 503, "the index is not complete"},
		"unknown verb":       {nil, "/bind", strings.NewReader(good), 404, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			h := handler(t, &source{cluster(), test.ready}, func(o *Options) { o.MaxBody = 4096 })
			w := post(h, test.path, test.body)
			if w.Code != test.code || !strings.Contains(w.Body.String(), test.words) {
				t.Errorf("code %d, words %q; want %d, %q", w.Code, w.Body, test.code, test.words)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	s := &source{index: cluster(), err: errors.New("no first list yet")}
	h := handler(t, s, nil)
	get := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
	}
	want := []string{"200 ok", "503 no first list yet", "405 Method Not Allowed"}
	if diff := cmp.Diff(want, []string{get("/healthz"), get("/readyz"), get("/filter")}); diff != "" {
		t.Error(diff)
	}
	s.err = nil
	if got := get("/readyz"); got != "200 ok" {
		t.Error(got)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	h := handler(t, &source{index: cluster()}, func(o *Options) { o.Registerer = registry })
	post(h, "/filter", strings.NewReader(question([]string{"a"}, "n1")))
	post(h, "/filter", strings.NewReader(question([]string{"a"}, "n1")))
	post(h, "/prioritize", strings.NewReader("x"))
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d families: %v", len(families), err)
	}
	got := map[string]uint64{}
	for _, m := range families[0].Metric {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		got[labels["verb"]+" "+labels["code"]] = m.Histogram.GetSampleCount()
	}
	if diff := cmp.Diff(map[string]uint64{"filter 200": 2, "prioritize 400": 1}, got); diff != "" || families[0].GetName() != "moor_extender_request_seconds" {
		t.Error(families[0].GetName(), diff)
	}
	if _, err := New(Options{Registerer: registry}); err == nil {
		t.Error("registered twice")
	}
}

// FuzzBody throws bodies at both verbs: they answer 200 or 400, and never fall.
func FuzzBody(f *testing.F) {
	body, err := os.ReadFile("testdata/filter.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(body))
	for _, seed := range []string{"", "{}", "null", `{"Pod":{},"Nodes":{}}`, `{"Pod":{"spec":{"volumes":[null,{"ephemeral":{}}]}},"NodeNames":[]}`, `{"pod":{},"nodenames":["n1",null]}`} {
		f.Add(seed)
	}
	h := handler(f, &source{index: cluster()}, nil)
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/filter", "/prioritize"} {
			w := post(h, path, strings.NewReader(body))
			if w.Code != 200 && w.Code != 400 {
				t.Errorf("%s: code %d", path, w.Code)
			}
			if w.Code == 200 && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s: answer %q", path, w.Body)
			}
		}
	})
}
