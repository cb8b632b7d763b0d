package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/controller/failover"
	"github.com/moor-storage/moor/pkg/nodehealth/listener"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
)

// parse reads flags as main does.
func parse(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	o, fs := &options{}, pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.bind(fs)
	fs.IntP("v", "v", 0, "")
	return o, fs.Parse(args)
}

// TestRefuses: flags that make no sense are refused before anything is connected.
func TestRefuses(t *testing.T) {
	const dpu = "--dpu-cluster-kubeconfig=/nowhere"
	for name, c := range map[string]struct {
		args  []string
		words string
	}{
		"no DPU cluster":          {nil, "--dpu-cluster-kubeconfig is required"},
		"heartbeats too short":    {[]string{dpu, "--heartbeat-timeout=500ms"}, "--heartbeat-timeout is 500ms: at least 1s is needed"},
		"silence too short":       {[]string{dpu, "--silence-timeout=1s"}, "--silence-timeout is 1s: " + listener.LeastSilence.String()},
		"silence beyond a beat":   {[]string{dpu, "--heartbeat-timeout=20s", "--silence-timeout=21s"}, "--silence-timeout is 21s"},
		"no drain":                {[]string{dpu, "--power-drain=0s"}, "--power-drain 0s"},
		"a doubt too short":       {[]string{dpu, "--failover-not-ready-after=59s"}, "--failover-not-ready-after is 59s: at least 1m0s is needed"},
		"a doubt before it began": {[]string{dpu, "--failover-dpu-silent-after=-1h"}, "--failover-dpu-silent-after is -1h0m0s"},
		"no driver":               {[]string{dpu, "--driver-name="}, "--driver-name: no CSI driver is named"},
		"no driver's name":        {[]string{dpu, "--driver-name=a, b"}, `--driver-name: " b" is not the name of a CSI driver`},
		"one of several, unnamed": {[]string{dpu, "--several-dpu-clusters"}, "--several-dpu-clusters needs --dpucluster-namespace and --dpucluster-name"},
		"the namespace alone":     {[]string{dpu, "--several-dpu-clusters", "--dpucluster-namespace=dpf"}, "--several-dpu-clusters needs --dpucluster-namespace and --dpucluster-name"},
		"no such host kubeconfig": {[]string{dpu, "--kubeconfig=/nowhere"}, "host cluster: "},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %q", err, c.words)
			}
		})
	}
	if _, err := parse(t, "--attach-mode=Both"); err == nil {
		t.Error("an attach mode that there is not was taken")
	}
}

// TestDefaults: without flags the controller asks for attachments, and fails over
// within the default budget.
func TestDefaults(t *testing.T) {
	o, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if o.attach != dpf.AttachController || o.budget != failover.DefaultBudget || o.silenceTimeout < listener.LeastSilence || o.silenceTimeout > o.heartbeatTimeout {
		t.Errorf("got %+v", o)
	}
}

// TestDrivers: one, a list, or the flag again and again.
func TestDrivers(t *testing.T) {
	for args, want := range map[string][]string{
		"":                                {"csi.snap.nvidia.com"},
		"--driver-name=a":                 {"a"},
		"--driver-name=a,b":               {"a", "b"},
		"--driver-name=a --driver-name=b": {"a", "b"},
	} {
		if o, err := parse(t, strings.Fields(args)...); err != nil || !slices.Equal(o.drivers, want) {
			t.Errorf("%s: %v, %v; want %v", args, o.drivers, err, want)
		}
	}
}

// TestManifestsFlags: what the shipped manifest says is understood.
func TestManifestsFlags(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "host", "workloads", "snap-host-controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, doc := range strings.Split(string(raw), "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil || d.Kind != "Deployment" {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			found = true
			o, err := parse(t, c.Args...)
			if err != nil || o.dpuKubeconfig == "" {
				t.Errorf("container %s, args %q: %v", c.Name, c.Args, err)
			}
		}
	}
	if !found {
		t.Error("the manifest has no Deployment")
	}
}

// TestWatchedLeases: of its own namespace a cache holds the Leases of heartbeats alone,
// of the kubelets' every Lease.
func TestWatchedLeases(t *testing.T) {
	got := heartbeats("users", corev1.NamespaceNodeLease)
	if len(got.Namespaces) != 2 {
		t.Fatalf("watches %v", got.Namespaces)
	}
	own, kubelets := got.Namespaces["users"], got.Namespaces[corev1.NamespaceNodeLease]
	if own.LabelSelector == nil || !own.LabelSelector.Matches(labels.Set{moorv1alpha1.LabelHeartbeat: ""}) || own.LabelSelector.Matches(labels.Set{}) {
		t.Errorf("of its own namespace: %v", own.LabelSelector)
	}
	if kubelets.LabelSelector != nil || kubelets.FieldSelector != nil {
		t.Errorf("of the kubelets: %v", kubelets)
	}
}
