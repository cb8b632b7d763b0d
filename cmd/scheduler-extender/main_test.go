package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/scheduler/framework"
)

var manifests = filepath.Join("..", "..", "deploy", "scheduler")

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"defaults":               {nil, ""},
		"leader election is off": {[]string{"--leader-elect"}, ""},
		"TLS":                    {[]string{"--tls-cert-file=a", "--tls-key-file=b", "--client-ca-file=c"}, ""},
		"half of TLS":            {[]string{"--tls-cert-file=a"}, "set both or none"},
		"clients without TLS":    {[]string{"--client-ca-file=c"}, "needs --tls-cert-file"},
		"no time":                {[]string{"--request-timeout=0s"}, "must be positive"},
		"no body":                {[]string{"--max-body-bytes=-1"}, "must be positive"},
		"two drivers":            {[]string{"--driver-name=a,b"}, ""},
		"no driver":              {[]string{"--driver-name="}, "--driver-name: no CSI driver is named"},
		"kube flags are checked": {[]string{"--kube-api-qps=0"}, "--kube-api-qps"},
	} {
		t.Run(name, func(t *testing.T) {
			var o options
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.bind(fs)
			if err := fs.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			err := o.validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if o.flags.LeaderElect {
				t.Error("it would wait for a lease")
			}
		})
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
		var o options
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.bind(fs)
		if err := fs.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, o.drivers); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
}

// configuration decodes a scheduler's configuration as strictly as it does.
func configuration(t *testing.T, text []byte) schedulerv1.KubeSchedulerConfiguration {
	t.Helper()
	var c schedulerv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// The shipped configurations must not step into a trap: each of these has cost
// a user a cluster that does not schedule, or replicas of no use.
func TestShippedConfigurations(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(manifests, "kube-scheduler-config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	first := configuration(t, text)
	if p := first.PercentageOfNodesToScore; p == nil || *p != 100 {
		t.Error("the default scheduler samples nodes before it asks")
	}
	second := configuration(t, inConfigMap(t, "second-scheduler.yaml"))
	if len(second.Profiles) != 1 || *second.Profiles[0].SchedulerName != "moor-scheduler" || *second.Profiles[0].PercentageOfNodesToScore != 100 {
		t.Errorf("the second scheduler's profiles: %+v", second.Profiles)
	}
	if second.LeaderElection.ResourceName != "moor-scheduler" {
		t.Errorf("the second scheduler's lease is %q: it would wait for the first one's", second.LeaderElection.ResourceName)
	}
	want := []schedulerv1.Extender{{
		URLPrefix: "http://127.0.0.1:8888", FilterVerb: "filter", PrioritizeVerb: "prioritize", Weight: 10,
		NodeCacheCapable: true, Ignorable: true, HTTPTimeout: metav1.Duration{Duration: time.Second},
	}}
	for name, c := range map[string]schedulerv1.KubeSchedulerConfiguration{"first": first, "second": second} {
		if diff := cmp.Diff(want, c.Extenders); diff != "" || c.APIVersion != "kubescheduler.config.k8s.io/v1" {
			t.Errorf("%s, %s: %s", name, c.APIVersion, diff)
		}
	}
}

// The plugin scores at every point, is the first of the filters, so that holding
// nodes back costs nothing more, and comes before preemption.
func TestShippedConfigurationsOfThePlugin(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(manifests, "kube-scheduler-config-plugin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	own := configuration(t, text)
	second := configuration(t, inConfigMap(t, "plugin-scheduler.yaml"))
	if second.LeaderElection.ResourceName != "moor-plugin-scheduler" {
		t.Errorf("the second scheduler's lease is %q: it would wait for the first one's", second.LeaderElection.ResourceName)
	}
	first := schedulerv1.PluginSet{Enabled: []schedulerv1.Plugin{{Name: framework.Name}}}
	want := schedulerv1.Plugins{
		MultiPoint: schedulerv1.PluginSet{Enabled: []schedulerv1.Plugin{{Name: framework.Name, Weight: ptr.To[int32](10)}}},
		Filter:     first, PostFilter: first,
	}
	for name, c := range map[string]schedulerv1.KubeSchedulerConfiguration{"moor": own, "moor-plugin-scheduler": second} {
		p := c.Profiles[len(c.Profiles)-1]
		if *p.SchedulerName != name || c.PercentageOfNodesToScore != nil || p.PercentageOfNodesToScore != nil || len(c.Extenders) > 0 {
			t.Errorf("%s: %+v", name, c)
		}
		if diff := cmp.Diff(want, *p.Plugins); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	var args framework.Args
	if err := yaml.UnmarshalStrict(own.Profiles[1].PluginConfig[0].Args.Raw, &args); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(framework.Args{DriverName: podvolume.DefaultDriver, Namespace: framework.DefaultNamespace}, args); diff != "" {
		t.Error("the defaults that are told:", diff)
	}
}

// inConfigMap is the configuration in the ConfigMap of a manifest.
func inConfigMap(t *testing.T, manifest string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, manifest))
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var m corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(document), &m); err == nil && m.Kind == "ConfigMap" {
			return []byte(m.Data["config.yaml"])
		}
	}
	t.Fatalf("%s has no ConfigMap", manifest)
	return nil
}
