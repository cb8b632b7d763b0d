package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// policiesOf are the NetworkPolicies that select the pods with these labels.
func policiesOf(t *testing.T, all map[string]map[string]any, pod map[string]any) []networkingv1.NetworkPolicy {
	t.Helper()
	set := labels.Set{}
	for k, v := range pod {
		set[k] = fmt.Sprint(v)
	}
	var out []networkingv1.NetworkPolicy
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(key, "NetworkPolicy/") {
			continue
		}
		var p networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all[key], &p, true); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || selector.Empty() {
			t.Fatalf("%s selects %v, %v", key, selector, err)
		}
		if selector.Matches(set) {
			out = append(out, p)
		}
	}
	return out
}

// portsOf are those of a rule, such as "TCP 8080"; "any" if it has none.
func portsOf(ports []networkingv1.NetworkPolicyPort) []string {
	if len(ports) == 0 {
		return []string{"any"}
	}
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprintf("%s %s", *p.Protocol, p.Port))
	}
	slices.Sort(out)
	return out
}

// bound is the port of a flag such as --metrics-bind-address=:8080; 0 if it binds none that
// others can reach.
func bound(arg string) int {
	flag, value, _ := strings.Cut(arg, "=")
	if !strings.HasSuffix(flag, "-bind-address") && !strings.HasSuffix(flag, "-port") || strings.HasPrefix(value, "127.") {
		return 0
	}
	port, err := strconv.Atoi(value[strings.LastIndex(value, ":")+1:])
	if err != nil {
		return 0
	}
	return port
}

// asked is what others than the kubelet may ask of a container, and declared all that it says
// it serves.
func asked(t *testing.T, c container) (metrics []string, declared map[int]string) {
	t.Helper()
	declared = map[int]string{}
	ports, _ := c.spec["ports"].([]any)
	for _, p := range ports {
		name, number := fmt.Sprint(p.(map[string]any)["name"]), int(p.(map[string]any)["containerPort"].(float64))
		declared[number] = name
		switch {
		case strings.HasSuffix(name, "metrics"):
			metrics = append(metrics, fmt.Sprintf("TCP %d", number))
		case !strings.HasSuffix(name, "health"):
			t.Errorf("container %s of %s serves %s: who asks for it?", c.name, c.workload, name)
		}
	}
	return metrics, declared
}

// mayAsk is what a program may ask.
func mayAsk(c container) [][]string {
	switch who(c) {
	case "storage-vendor-dpu-plugin block":
		return nil // it has the socket of SNAP
	case "storage-vendor-dpu-plugin fs":
		return [][]string{{"any"}}
	}
	return [][]string{{"TCP 443", "TCP 6443"}, {"TCP 53", "UDP 53"}}
}

// TestNetworkPolicies: each pod that is not on the network of its node has one policy, by which
// it is asked for metrics and nothing else, and asks for what its program needs.
func TestNetworkPolicies(t *testing.T) {
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for name, values := range cases {
		values["networkPolicies"] = map[string]any{"enabled": true}
		out, err := render(root, "r", values, nil)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, out)
		for _, c := range containersOf(all) {
			metrics, declared := asked(t, c)
			for _, arg := range texts(c.spec["args"]) {
				if port := bound(arg); port != 0 && declared[port] == "" {
					t.Errorf("%s: container %s of %s serves %s and does not declare the port", name, c.name, c.workload, arg)
				}
			}
			selecting := policiesOf(t, all, c.labels)
			if c.pod["hostNetwork"] == true {
				continue
			}
			if len(selecting) != 1 {
				t.Errorf("%s: %s has %d policies", name, c.workload, len(selecting))
				continue
			}
			spec := selecting[0].Spec
			if !slices.Equal(spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
				t.Errorf("%s: the policy of %s is about %v", name, c.workload, spec.PolicyTypes)
			}
			if program(c.spec) == "" {
				continue // a sidecar asks what its program may ask
			}
			found[who(c)] = true
			if len(spec.Ingress) != 1 || !slices.Equal(portsOf(spec.Ingress[0].Ports), metrics) {
				t.Errorf("%s: %s is asked by %+v, and has %v", name, c.workload, spec.Ingress, metrics)
			}
			var egress [][]string
			for _, rule := range spec.Egress {
				egress = append(egress, portsOf(rule.Ports))
			}
			if !slices.EqualFunc(egress, mayAsk(c), slices.Equal[[]string]) {
				t.Errorf("%s: %s may ask %v, want %v", name, c.workload, egress, mayAsk(c))
			}
		}
	}
	if len(found) != 7 {
		t.Errorf("policies of %v were seen", slices.Sorted(maps.Keys(found)))
	}
}

// TestNetworkPoliciesOff: they are wanted, or there are none; on the network of a node no
// policy is about a pod.
func TestNetworkPoliciesOff(t *testing.T) {
	for text, want := range map[string]int{
		"{cluster: host}": 0,
		"{cluster: host, networkPolicies: {enabled: true}}":                                                     3,
		"{cluster: host, networkPolicies: {enabled: true}, host: {snapCsiPlugin: {node: {hostNetwork: true}}}}": 2,
		"{networkPolicies: {enabled: true}, dpu: {snapNodeDriver: {enabled: true}}}":                            1,
	} {
		out, err := render(rootOf(t), "r", values(t, text), nil)
		if err != nil {
			t.Fatal(err)
		}
		if have := strings.Count(out, "kind: NetworkPolicy\n"); have != want {
			t.Errorf("%s: %d policies, want %d", text, have, want)
		}
	}
}

// TestNetworkPolicyValues: where API servers are, who asks for metrics, and what else may be
// asked reach the policies.
func TestNetworkPolicyValues(t *testing.T) {
	root := rootOf(t)
	cases, err := valuesOf(root)
	if err != nil {
		t.Fatal(err)
	}
	out, err := render(root, "r", cases["host-network-policies"], nil)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, out)
	for _, c := range containersOf(all) {
		for _, p := range policiesOf(t, all, c.labels) {
			if from := p.Spec.Ingress[0].From; len(from) != 1 || from[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "monitoring" {
				t.Errorf("%s: metrics are for %+v", p.Name, from)
			}
			if len(p.Spec.Egress) != 3 {
				t.Fatalf("%s: %+v", p.Name, p.Spec.Egress)
			}
			var to []string
			for _, rule := range p.Spec.Egress {
				for _, peer := range rule.To {
					to = append(to, peer.IPBlock.CIDR)
				}
			}
			if !slices.Equal(to, []string{"10.96.0.1/32", "192.0.2.0/24", "198.51.100.0/24"}) {
				t.Errorf("%s: asks %v", p.Name, to)
			}
		}
	}
	for _, bad := range []string{"{cluster: host, networkPolicies: {apiServer: {ports: []}}}", "{cluster: host, networkPolicies: {apiServer: {ports: [https]}}}", "{cluster: host, networkPolicies: {apiServer: {cidrs: [10.0.0.1]}}}"} {
		if _, err := render(root, "r", values(t, bad), nil); err == nil || !strings.Contains(err.Error(), "networkPolicies") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
