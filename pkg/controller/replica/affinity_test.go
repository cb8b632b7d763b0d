package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const host = corev1.LabelHostname

// term speaks of the pods with app=name.
func term(key, name string, change ...func(*corev1.PodAffinityTerm)) corev1.PodAffinityTerm {
	out := corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}
	for _, c := range change {
		c(&out)
	}
	return out
}

func in(namespaces ...string) func(*corev1.PodAffinityTerm) {
	return func(t *corev1.PodAffinityTerm) { t.Namespaces = namespaces }
}

func inThose(set map[string]string) func(*corev1.PodAffinityTerm) {
	return func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: set} }
}

func near(terms ...corev1.PodAffinityTerm) *corev1.Affinity {
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

func apart(terms ...corev1.PodAffinityTerm) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

func someone(namespace, app string, affinity *corev1.Affinity) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Affinity: affinity},
	}
}

// TestGather: nodes n1 and n2 in zone z1, n3 in z2; others are on n1 but where
// it says otherwise. Suited lists the nodes where the pod could run.
func TestGather(t *testing.T) {
	nodes := map[string]map[string]string{
		"n1": {host: "n1", "zone": "z1"}, "n2": {host: "n2", "zone": "z1"}, "n3": {host: "n3", "zone": "z2"},
	}
	namespaces := map[string]labels.Set{"a": {"team": "a"}, "b": {"team": "b"}}
	two := func(app string) place { return place{someone("a", app, nil), nodes["n2"]} }
	for name, tc := range map[string]struct {
		demands *corev1.Affinity
		others  []place
		suited  []string
	}{
		"no demands":                          {nil, []place{{someone("a", "x", nil), nodes["n1"]}}, []string{"n1", "n2", "n3"}},
		"not near x, by host":                 {apart(term(host, "x")), []place{{someone("a", "x", nil), nodes["n1"]}}, []string{"n2", "n3"}},
		"not near x, by zone":                 {apart(term("zone", "x")), []place{{someone("a", "x", nil), nodes["n1"]}}, []string{"n3"}},
		"not near x, which is y":              {apart(term(host, "x")), []place{{someone("a", "y", nil), nodes["n1"]}}, []string{"n1", "n2", "n3"}},
		"neither near x nor near y":           {apart(term(host, "x"), term(host, "y")), []place{{someone("a", "x", nil), nodes["n1"]}, two("y")}, []string{"n3"}},
		"not near x of another namespace":     {apart(term(host, "x")), []place{{someone("b", "x", nil), nodes["n1"]}}, []string{"n1", "n2", "n3"}},
		"not near x of b, by name":            {apart(term(host, "x", in("b"))), []place{{someone("b", "x", nil), nodes["n1"]}}, []string{"n2", "n3"}},
		"not near x of b, by label":           {apart(term(host, "x", inThose(map[string]string{"team": "b"}))), []place{{someone("b", "x", nil), nodes["n1"]}, two("x")}, []string{"n2", "n3"}},
		"not near x of anywhere":              {apart(term(host, "x", inThose(nil))), []place{{someone("b", "x", nil), nodes["n1"]}, two("x")}, []string{"n3"}},
		"a key that the node lacks":           {apart(term("rack", "x")), []place{{someone("a", "x", nil), nodes["n1"]}}, []string{"n1", "n2", "n3"}},
		"x wants to be alone":                 {nil, []place{{someone("a", "x", apart(term(host, "me"))), nodes["n1"]}}, []string{"n2", "n3"}},
		"x wants to be without y":             {nil, []place{{someone("a", "x", apart(term(host, "y"))), nodes["n1"]}}, []string{"n1", "n2", "n3"}},
		"near x, by zone":                     {near(term("zone", "x")), []place{{someone("a", "x", nil), nodes["n1"]}}, []string{"n1", "n2"}},
		"near x, which is nowhere":            {near(term("zone", "x")), nil, []string{"n1", "n2", "n3"}},
		"near what is both, and none is both": {near(term("zone", "x"), term(host, "y")), []place{{someone("a", "x", nil), nodes["n1"]}, two("y")}, []string{"n1", "n2", "n3"}},
		"a selector that cannot be read": {
			apart(corev1.PodAffinityTerm{TopologyKey: host, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}}),
			[]place{{someone("a", "x", nil), nodes["n1"]}},
			[]string{"n1", "n2", "n3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for order := range 2 {
				if order == 1 {
					slices.Reverse(tc.others)
				}
				c := gather(someone("a", "me", tc.demands), tc.others, namespaces)
				got = nil
				for _, n := range []string{"n1", "n2", "n3"} {
					if c.unsuited(nodes[n]) == "" {
						got = append(got, n)
					}
				}
				if d := cmp.Diff(tc.suited, got); d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
			}
		})
	}
}

func bound(node, app string, affinity *corev1.Affinity) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": app}
		p.Spec.NodeName, p.Spec.Affinity = node, affinity
		p.Spec.Volumes = nil
	}
}

// TestWhereOthersLetItRun: a replica goes where the pod could run beside the
// others, leaves when a pod comes that makes it useless, and stays when there
// is nowhere better.
func TestWhereOthersLetItRun(t *testing.T) {
	w := newFixture(t, 2, 1)
	w.attach("vol", "a", primary)
	w.pod("m-0", func(p *corev1.Pod) {
		p.Labels, p.Spec.NodeName, p.Spec.Affinity = map[string]string{"app": "m"}, "a", apart(term(host, "m"))
	}, "vol")
	w.pod("beside", bound("a", "m", nil)) // on the primary's host: goes down with it
	w.pod("m-1", bound("b", "m", nil))
	w.pod("m-2", bound("c", "m", nil))
	w.pass("vol")
	if got := w.replicas("vol"); !slices.Equal(got, []string{"d"}) {
		t.Fatalf("the replica is on %v, and only d is free of m", got)
	}
	w.pod("m-3", bound("d", "m", nil))
	w.pass("vol")
	if got, s := w.replicas("vol"), w.state("vol"); !slices.Equal(got, []string{"d"}) || s.Missing != 0 || s.Message != "no better node was found: node d: pod apps/m-0 could not run there now: pod apps/m-3 runs there, which it must not be near to" {
		t.Fatalf("with m everywhere: on %v, %+v", got, s)
	}
	w.Remove(someone("apps", "m-2", nil))
	w.pass("vol")
	w.letGo()
	w.pass("vol")
	if got := w.replicas("vol"); !slices.Equal(got, []string{"c"}) {
		t.Fatalf("c is free of m, and the replica is on %v", got)
	}
}

// TestWhoIsWoken: a pod wakes its own volumes and those of pods that it concerns.
func TestWhoIsWoken(t *testing.T) {
	w := newFixture(t, 2, 1)
	w.volume("log", 2, 1)
	w.pod("choosy", func(p *corev1.Pod) { p.Spec.Affinity = apart(term(host, "m")) }, "vol")
	w.pod("easy", nil, "log")
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"that no rule names":         {someone("apps", "x", nil), nil},
		"whom the choosy one minds":  {someone("apps", "m", nil), []string{"vol"}},
		"of another namespace":       {someone("other", "m", nil), nil},
		"who minds the choosy one":   {someone("apps", "x", apart(corev1.PodAffinityTerm{TopologyKey: host, LabelSelector: &metav1.LabelSelector{}})), []string{"vol"}},
		"whose namespaces are asked": {someone("apps", "x", apart(term(host, "q", inThose(map[string]string{"team": "a"})))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range w.r.ofPod(t.Context(), tc.pod) {
				got = append(got, r.Name)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestAlive: a pod that is not on its node for good counts for nothing.
func TestAlive(t *testing.T) {
	now := metav1.NewTime(time.Now())
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"runs":        {func(*corev1.Pod) {}, true},
		"waits":       {func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		"is going":    {func(p *corev1.Pod) { p.DeletionTimestamp = &now }, false},
		"has ended":   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"has failed":  {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"is starting": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, true},
	} {
		p := someone("a", "x", nil)
		p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning
		if tc.change(p); alive(p) != tc.want {
			t.Errorf("%s: alive is %v", name, alive(p))
		}
	}
}
