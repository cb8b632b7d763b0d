package dpupairing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

func node(dpu string) *moorv1alpha1.DPUStorageNode {
	return &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "h"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: dpu, HostMode: moorv1alpha1.Trusted}}
}

func TestDecide(t *testing.T) {
	gone := node("")
	now := metav1.Now()
	gone.DeletionTimestamp = &now
	one, zero := []DPU{{Name: "d"}}, []DPU{{Name: "d", ZeroTrust: true}}
	two := []DPU{{Name: "e"}, {Name: "d"}}
	preferred := []DPU{{Name: "d"}, {Name: "e", Preferred: true}}
	for name, tc := range map[string]struct {
		dpus []DPU
		node *moorv1alpha1.DPUStorageNode
		want decision
	}{
		"no DPU":                        {nil, node(""), decision{}},
		"no DPU any more":               {nil, node("d"), decision{}},
		"one":                           {one, node(""), decision{name: "d"}},
		"one, named":                    {one, node("d"), decision{}},
		"one, before the node plugin":   {one, nil, decision{}},
		"one, the object goes":          {one, gone, decision{}},
		"zero trust, named by a person": {zero, node("d"), decision{}},
		"zero trust": {zero, nil, decision{create: &moorv1alpha1.DPUStorageNode{
			ObjectMeta: metav1.ObjectMeta{Name: "h"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "d", HostMode: moorv1alpha1.ZeroTrust},
		}}},
		"another is named": {one, node("c"), decision{words: "DPF has DPU d in this host, and spec.dpuName is c: if the card was replaced, name d there, and c in spec.replaces"}},
		"several": {two, node(""), decision{
			words: "DPF has several DPUs in this host, d, e, and 0 of them have the annotation storage.nvidia.com/preferred-dpu: one has to, or is named in spec.dpuName",
		}},
		"several, and one is named":       {two, node("e"), decision{}},
		"several, zero trust":             {[]DPU{{Name: "d", ZeroTrust: true}, {Name: "e", ZeroTrust: true}}, nil, decision{words: "DPF has several DPUs in this host, d, e, and 0 of them have the annotation storage.nvidia.com/preferred-dpu: one has to, or is named in spec.dpuName"}},
		"one of several is preferred":     {preferred, node(""), decision{name: "e"}},
		"one is preferred, another named": {preferred, node("d"), decision{}},
		"two are preferred": {[]DPU{{Name: "d", Preferred: true}, {Name: "e", Preferred: true}}, node(""), decision{
			words: "DPF has several DPUs in this host, d, e, and 2 of them have the annotation storage.nvidia.com/preferred-dpu: one has to, or is named in spec.dpuName",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, decide("h", tc.dpus, tc.node), cmp.AllowUnexported(decision{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// asDPFHasIt is a DPU.
func asDPFHasIt(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	o := object()
	o.SetName("d")
	o.SetNamespace("dpf")
	_ = unstructured.SetNestedField(o.Object, "h", "spec", "dpuNodeName")
	if change != nil {
		change(o)
	}
	return o
}

func TestWhatCountsOfADPU(t *testing.T) {
	for name, tc := range map[string]struct {
		o    client.Object
		want DPU
	}{
		"plain": {asDPFHasIt(nil), DPU{Name: "d", Host: "h"}},
		"preferred, whatever the value": {
			asDPFHasIt(func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{PreferredAnnotation: "false"}) }),
			DPU{Name: "d", Host: "h", Preferred: true},
		},
		"zero trust": {
			asDPFHasIt(func(o *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(o.Object, "zero-trust", "status", "deploymentMode")
			}),
			DPU{Name: "d", Host: "h", ZeroTrust: true},
		},
		"host-trusted": {
			asDPFHasIt(func(o *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(o.Object, "host-trusted", "status", "deploymentMode")
			}),
			DPU{Name: "d", Host: "h"},
		},
		"in a cluster": {
			asDPFHasIt(func(o *unstructured.Unstructured) {
				_ = unstructured.SetNestedStringMap(o.Object, map[string]string{"name": "c", "namespace": "ns"}, "spec", "cluster")
			}),
			DPU{Name: "d", Host: "h", Cluster: "ns/c"},
		},
		"malformed":      {asDPFHasIt(func(o *unstructured.Unstructured) { o.Object["spec"] = "x" }), DPU{Name: "d"}},
		"something else": {node("d"), DPU{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dpuOf(tc.o); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if o, ok := tc.o.(*unstructured.Unstructured); ok && len(host(t.Context(), o)) > 0 != (tc.want.Host != "") {
				t.Errorf("%d hosts are looked at", len(host(t.Context(), o)))
			}
		})
	}
}

// fixture is the host cluster with one host.
func fixture(t *testing.T, objects ...client.Object) (*Reconciler, client.WithWatch, *record.FakeRecorder) {
	t.Helper()
	scheme, err := kube.NewScheme(moorv1alpha1.AddHostToScheme)
	if err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	recorder := record.NewFakeRecorder(10)
	none := func(context.Context) ([]string, error) { return nil, nil }
	return &Reconciler{Host: kube.Cluster{Client: api, Live: api}, Namespace: "dpf", Recorder: recorder, clusters: none}, api, recorder
}

func events(r *record.FakeRecorder) (out []string) {
	for {
		select {
		case e := <-r.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func TestReconcile(t *testing.T) {
	for name, tc := range map[string]struct {
		dpus   []DPU
		there  []client.Object
		dpu    string // "" is no DPUStorageNode, or no DPU in it
		mode   moorv1alpha1.HostMode
		events []string
	}{
		"named":            {[]DPU{{Name: "d"}}, []client.Object{node("")}, "d", moorv1alpha1.Trusted, []string{"Normal DPUNamed DPF has DPU d"}},
		"made and named":   {[]DPU{{Name: "d", ZeroTrust: true}}, nil, "d", moorv1alpha1.ZeroTrust, nil},
		"nothing is known": {nil, []client.Object{node("")}, "", moorv1alpha1.Trusted, nil},
		"it stays":         {[]DPU{{Name: "d"}}, []client.Object{node("c")}, "c", moorv1alpha1.Trusted, []string{"Warning DPUNotNamed DPF has DPU d in this host, and spec.dpuName is c"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, api, recorder := fixture(t, tc.there...)
			r.dpus = func(context.Context, string) ([]DPU, error) { return tc.dpus, nil }
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "h"}}); err != nil {
				t.Fatal(err)
			}
			got := &moorv1alpha1.DPUStorageNode{}
			if err := api.Get(t.Context(), client.ObjectKey{Name: "h"}, got); err != nil {
				t.Fatal(err)
			}
			if got.Spec.DPUName != tc.dpu || got.Spec.HostMode != tc.mode {
				t.Errorf("%+v, want DPU %q of a host that is %s", got.Spec, tc.dpu, tc.mode)
			}
			told := events(recorder)
			if len(told) != len(tc.events) || !slices.EqualFunc(told, tc.events, strings.HasPrefix) {
				t.Errorf("events %q, want %q", told, tc.events)
			}
		})
	}
}

// TestClusters: a DPU is named only if it is in the DPU cluster that this controller serves, which it has to know if
// there are several.
func TestClusters(t *testing.T) {
	mine, others, old := DPU{Name: "d", Cluster: "ns/a"}, DPU{Name: "e", Cluster: "ns/b"}, DPU{Name: "f"}
	trusted := func(d DPU) DPU { return d }
	zero := func(d DPU) DPU { d.ZeroTrust = true; return d }
	both := []string{"ns/a", "ns/b"}
	failed := errors.New("the cache is not there")
	for name, tc := range map[string]struct {
		is      func(DPU) DPU
		cluster string
		dpus    []DPU
		node    *moorv1alpha1.DPUStorageNode
		all     []string
		fails   error
		want    string // the DPU
		words   string
	}{
		"its own":                                {trusted, "ns/a", []DPU{mine}, node(""), both, nil, "d", ""},
		"another's":                              {trusted, "ns/a", []DPU{others}, node(""), both, nil, "", "DPF has DPU e in this host, in DPU cluster ns/b, and snap-host-controller serves ns/a: it shows no volume to this host"},
		"another's, zero trust":                  {zero, "ns/a", []DPU{others}, nil, both, nil, "", ""},
		"another's, named by a person":           {trusted, "ns/a", []DPU{others}, node("e"), both, nil, "", ""},
		"one of each":                            {trusted, "ns/a", []DPU{mine, others}, node(""), both, nil, "d", ""},
		"one that names none":                    {trusted, "ns/a", []DPU{old}, node(""), both, nil, "f", ""},
		"not told, and there is one":             {trusted, "", []DPU{mine}, node(""), []string{"ns/a"}, nil, "d", ""},
		"not told, and none is named":            {trusted, "", []DPU{old}, node(""), nil, nil, "f", ""},
		"not told, and there are two":            {trusted, "", []DPU{mine}, node(""), both, nil, "", "several DPU clusters, ns/a, ns/b, and snap-host-controller serves one: tell it which by --dpucluster-name and --dpucluster-namespace"},
		"not told, there are two, zero trust":    {zero, "", []DPU{mine}, nil, both, nil, "", "several DPU clusters"},
		"not told, there are two, named by then": {trusted, "", []DPU{mine}, node("d"), both, nil, "", ""},
		"not told, and what there is is unknown": {trusted, "", []DPU{mine}, node(""), nil, failed, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Cluster: tc.cluster, clusters: func(context.Context) ([]string, error) { return tc.all, tc.fails }}
			var dpus []DPU
			for _, d := range tc.dpus {
				dpus = append(dpus, tc.is(d))
			}
			d, err := r.decide(t.Context(), "h", dpus, tc.node)
			got := d.name
			if d.create != nil {
				got = d.create.Spec.DPUName
			}
			if !errors.Is(err, tc.fails) || err == nil && (got != tc.want || !strings.Contains(d.words, tc.words) || (d.words == "") != (tc.words == "")) {
				t.Errorf("names %q, says %q, %v", got, d.words, err)
			}
		})
	}
}

// A DPU that a person has named while the cache did not know is not overruled.
func TestNamedMeanwhile(t *testing.T) {
	r, api, recorder := fixture(t, node(""))
	r.dpus = func(context.Context, string) ([]DPU, error) { return []DPU{{Name: "d"}}, nil }
	r.Host.Client = interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			named := o.DeepCopyObject().(*moorv1alpha1.DPUStorageNode)
			named.Spec.DPUName = "by-hand"
			return c.Update(ctx, named)
		},
	})
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "h"}}); err == nil {
		t.Error("no conflict")
	}
	got := &moorv1alpha1.DPUStorageNode{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "h"}, got); err != nil || got.Spec.DPUName != "by-hand" {
		t.Errorf("DPU %q is named: %v", got.Spec.DPUName, err)
	}
	if told := events(recorder); len(told) > 0 {
		t.Errorf("told %q", told)
	}
}

func TestFailures(t *testing.T) {
	failed := errors.New("the API server does not answer")
	for name, fail := range map[string]func(*Reconciler, client.WithWatch){
		"DPUs": func(r *Reconciler, _ client.WithWatch) {
			r.dpus = func(context.Context, string) ([]DPU, error) { return nil, failed }
		},
		"DPUStorageNode": func(r *Reconciler, api client.WithWatch) {
			r.Host.Client = interceptor.NewClient(api, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return failed
			}})
		},
		"create": func(r *Reconciler, api client.WithWatch) {
			r.Host.Client = interceptor.NewClient(api, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return failed }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, api, _ := fixture(t)
			r.dpus = func(context.Context, string) ([]DPU, error) { return []DPU{{Name: "d", ZeroTrust: true}}, nil }
			fail(r, api)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "h"}}); !errors.Is(err, failed) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Where DPF is not there, or may not be read, it is said why, and nothing else is different.
func TestMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		reason  string
		failure bool
	}{
		"served":        {nil, "", false},
		"not served":    {&meta.NoKindMatchError{GroupKind: Kind.GroupKind()}, "does not serve DPU.provisioning.dpu.nvidia.com", false},
		"not allowed":   {apierrors.NewForbidden(schema.GroupResource{Resource: "dpus"}, "", errors.New("no rule")), "they may not be listed", false},
		"not reachable": {errors.New("connection refused"), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r, api, _ := fixture(t)
			r.Host.Live = interceptor.NewClient(api, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return tc.err }})
			reason, err := r.missing(t.Context())
			if !strings.Contains(reason, tc.reason) || (tc.reason == "") != (reason == "") || (err != nil) != tc.failure {
				t.Errorf("reason %q, error %v", reason, err)
			}
		})
	}
}

// TestAmong: of several controllers the one of the DPU cluster that DPF says names the DPU, with that DPU
// cluster, and none takes a host of another.
func TestAmong(t *testing.T) {
	mine, others, old := DPU{Name: "d", Cluster: "ns/a"}, DPU{Name: "e", Cluster: "ns/b"}, DPU{Name: "f"}
	in := func(n *moorv1alpha1.DPUStorageNode, cluster string) *moorv1alpha1.DPUStorageNode {
		n.Spec.DPUCluster = cluster
		return n
	}
	gone := node("d")
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	zero := mine
	zero.ZeroTrust = true
	for name, tc := range map[string]struct {
		dpus []DPU
		node *moorv1alpha1.DPUStorageNode
		want decision
	}{
		"its own":                          {[]DPU{mine}, node(""), decision{name: "d", cluster: "ns/a"}},
		"its own, named before":            {[]DPU{mine}, node("d"), decision{name: "d", cluster: "ns/a"}},
		"its own, all is said":             {[]DPU{mine}, in(node("d"), "ns/a"), decision{}},
		"its own, the DPU is not said":     {[]DPU{mine}, in(node(""), "ns/a"), decision{name: "d", cluster: "ns/a"}},
		"its own, the object goes":         {[]DPU{mine}, gone, decision{}},
		"its own, before the node plugin":  {[]DPU{mine}, nil, decision{}},
		"another's":                        {[]DPU{others}, node(""), decision{}},
		"another's, named by a person":     {[]DPU{others}, node("e"), decision{}},
		"another's, by the object":         {[]DPU{mine}, in(node(""), "ns/b"), decision{}},
		"one of each":                      {[]DPU{others, mine}, node(""), decision{name: "d", cluster: "ns/a"}},
		"not said by DPF, but by a person": {[]DPU{old}, in(node("f"), "ns/a"), decision{}},
		"not said at all": {[]DPU{old}, node(""), decision{
			words: "DPF has DPU f in this host, and does not say in which of several DPU clusters: set spec.dpuCluster and spec.dpuName",
		}},
		"another card": {[]DPU{mine}, in(node("c"), "ns/a"), decision{
			words: "DPF has DPU d in this host, and spec.dpuName is c: if the card was replaced, name d there, and c in spec.replaces",
		}},
		"zero trust": {[]DPU{zero}, nil, decision{create: &moorv1alpha1.DPUStorageNode{
			ObjectMeta: metav1.ObjectMeta{Name: "h"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "d", DPUCluster: "ns/a", HostMode: moorv1alpha1.ZeroTrust},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (&Reconciler{Cluster: "ns/a", Several: true}).decide(t.Context(), "h", tc.dpus, tc.node)
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(decision{})); d != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
		})
	}
}
