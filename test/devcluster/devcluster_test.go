package devcluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

func bed(t *testing.T, nodes int) *Cluster {
	t.Helper()
	o, err := Options{Nodes: nodes}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{meta: meta{Options: o}}
}

func TestOptions(t *testing.T) {
	cases := []struct {
		name    string
		in      Options
		want    Options
		wantErr string
	}{
		{name: "defaults", want: Options{Nodes: 3, VFs: 16, KubeletProfile: ProfileStock}},
		{name: "as asked", in: Options{Nodes: 1, VFs: 2, KubeletProfile: ProfileFast}, want: Options{Nodes: 1, VFs: 2, KubeletProfile: ProfileFast}},
		{name: "more nodes than addresses", in: Options{Nodes: 61}, wantErr: "61 nodes"},
		{name: "negative nodes", in: Options{Nodes: -1}, wantErr: "-1 nodes"},
		{name: "negative functions", in: Options{VFs: -1}, wantErr: "-1 virtual functions"},
		{name: "unknown profile", in: Options{KubeletProfile: "slow"}, wantErr: `"slow"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.in.withDefaults()
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("error %v, want one with %q", err, c.wantErr)
				}
				return
			}
			if err != nil || got.Nodes != c.want.Nodes || got.VFs != c.want.VFs || got.KubeletProfile != c.want.KubeletProfile {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestMachinesAreFoundByName(t *testing.T) {
	c := bed(t, 2)
	for name, ip := range map[string]string{"hub": "10.77.0.1", "host-1": "10.77.0.11", "host-2": "10.77.0.12", "dpu-2": "10.77.0.102"} {
		if b, err := c.boxOf(name); err != nil || b.name != name || b.ip != ip {
			t.Errorf("machine %s is %+v, %v; want address %s", name, b, err, ip)
		}
	}
	for _, name := range []string{"", "host", "host-0", "host-3", "dpu--1", "switch-1", "host-1x"} {
		if b, err := c.boxOf(name); err == nil {
			t.Errorf("machine %q is %+v, want an error", name, b)
		}
	}
}

func TestNoTwoMachinesShareAnAddress(t *testing.T) {
	c := bed(t, layout.MaxNodes)
	c.meta.Options.DPUPods = true
	seen := map[string]string{layout.RootIP: "root"}
	for _, name := range slices.Concat([]string{layout.Hub}, c.Nodes(), c.DPUs()) {
		b, err := c.boxOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{b.ip, mac(b.ip), b.pods} {
			if address == "" {
				continue // a machine without pods
			}
			if other, ok := seen[address]; ok {
				t.Errorf("%s and %s share %s", name, other, address)
			}
			seen[address] = name
		}
		if len("p-"+name) > 15 {
			t.Errorf("device name p-%s is longer than the kernel allows", name)
		}
	}
}

func TestTemplatesFillIn(t *testing.T) {
	values := map[string]string{
		"PodSubnet": "10.0.0.0/24", "CgroupRoot": "/x", "ClusterDNS": "10.0.1.10", "StatusFrequency": "1s", "SyncFrequency": "1m",
		"Kubeconfig": "/k", "Extender": "http://127.0.0.1:1",
	}
	for _, name := range []string{"audit.yaml", "cni.conflist", "containerd.toml", "kubelet.yaml", "scheduler.yaml"} {
		path := filepath.Join(t.TempDir(), "sub", name)
		if err := render(name, path, values); err != nil {
			t.Error(err)
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.Contains(string(text), "{{") {
			t.Errorf("%s has a blank that was not filled in:\n%s", name, text)
		}
		var parsed map[string]any
		if err := yaml.Unmarshal(text, &parsed); filepath.Ext(name) != ".toml" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := render("kubelet.yaml", filepath.Join(t.TempDir(), "x"), map[string]string{}); err == nil {
		t.Error("a missing value is not noticed")
	}
}

func TestNodeReady(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: kind, Status: status}}
	}
	taint := []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
	cases := []struct {
		name string
		node corev1.Node
		want bool
	}{
		{name: "new"},
		{name: "not ready", node: corev1.Node{Status: corev1.NodeStatus{Conditions: condition(corev1.NodeReady, corev1.ConditionFalse)}}},
		{name: "another condition", node: corev1.Node{Status: corev1.NodeStatus{Conditions: condition(corev1.NodeDiskPressure, corev1.ConditionTrue)}}},
		{name: "still tainted", node: corev1.Node{Spec: corev1.NodeSpec{Taints: taint}, Status: corev1.NodeStatus{Conditions: condition(corev1.NodeReady, corev1.ConditionTrue)}}},
		{name: "ready", node: corev1.Node{Status: corev1.NodeStatus{Conditions: condition(corev1.NodeReady, corev1.ConditionTrue)}}, want: true},
		{name: "a DPU", node: corev1.Node{Status: dpuStatus("dpu-1", "10.77.0.101", metav1.Now())}, want: true},
	}
	for _, c := range cases {
		if got := nodeReady(&c.node); got != c.want {
			t.Errorf("%s: ready %v, want %v", c.name, got, c.want)
		}
	}
}

func TestNoTwoControlPlanesShareAPort(t *testing.T) {
	ports := map[int]string{}
	services := map[string]string{}
	for _, p := range twoDPUClusters(t, Options{}).planes() {
		if other, ok := services[p.services]; ok {
			t.Errorf("%s and %s share the range %s", p.name, other, p.services)
		}
		services[p.services] = p.name
		for _, port := range []int{p.port, p.managerPort, p.schedulerPort} {
			if other, ok := ports[port]; ok {
				t.Errorf("%s and %s share port %d", p.name, other, port)
			}
			ports[port] = p.name
		}
	}
}

// TestKubelets: those that are to join a cluster have its keys, and it then has what runs pods.
func TestKubelets(t *testing.T) {
	hosts, dpus := []string{"kubelet-host-1", "kubelet-host-2"}, []string{"kubelet-dpu-1", "kubelet-dpu-2"}
	for _, c := range []struct {
		name    string
		dpuPods bool
		want    map[string][]string
	}{
		{name: "on hosts", want: map[string][]string{HostCluster: hosts}},
		{name: "on DPUs too", dpuPods: true, want: map[string][]string{HostCluster: hosts, DPUCluster: dpus}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := bed(t, 2)
			cluster.meta.Options.DPUPods = c.dpuPods
			for _, p := range cluster.planes() {
				if got := kubeletKeys(p); !slices.Equal(got, c.want[p.name]) {
					t.Errorf("the %s cluster has keys of %v, want %v", p.name, got, c.want[p.name])
				}
				evicts := !strings.Contains(p.controllers, "-taint-eviction-controller")
				if runs := len(c.want[p.name]) > 0; evicts != runs {
					t.Errorf("pods of dead nodes of the %s cluster are evicted: %v, want %v", p.name, evicts, runs)
				}
			}
		})
	}
}

// kubeletKeys are the files with the kubeconfigs of kubelets.
func kubeletKeys(p plane) []string {
	var out []string
	for _, client := range p.pki().Clients {
		if slices.Contains(client.Groups, "system:nodes") {
			out = append(out, client.File)
		}
	}
	return out
}

// TestSchedulerWithoutExtender: that of the DPU cluster has none.
func TestSchedulerWithoutExtender(t *testing.T) {
	for url, want := range map[string]int{"": 0, "http://127.0.0.1:1": 1} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		if err := render("scheduler.yaml", path, map[string]string{"Kubeconfig": "/k", "Extender": url}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var config struct{ Extenders []any }
		if err := yaml.Unmarshal(text, &config); err != nil || len(config.Extenders) != want {
			t.Errorf("with the extender %q the scheduler has %v, %v; want %d", url, config.Extenders, err, want)
		}
	}
}

// TestHostsAloneHaveTheFSHelper: a DPU mounts no virtio-fs.
func TestHostsAloneHaveTheFSHelper(t *testing.T) {
	c := bed(t, 1)
	c.meta.Options.DPUPods = true
	for b, want := range map[box]bool{c.hub(): false, c.host(1): true, c.dpu(1): false} {
		if b.isHost() != want {
			t.Errorf("%s is a host: %v", b.name, b.isHost())
		}
	}
}
