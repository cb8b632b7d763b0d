package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/report"
)

func TestValidate(t *testing.T) {
	cases := map[string]struct{ flags, words string }{
		"good":               {"--node-name=dpu-1", ""},
		"no node":            {"", "--node-name"},
		"relative plugins":   {"--node-name=d --plugin-root=p", "--plugin-root"},
		"relative SNAP":      {"--node-name=d --provider-root=p", "--provider-root"},
		"no time":            {"--node-name=d --timeout=0s", "--timeout"},
		"no resync":          {"--node-name=d --resync=-1s", "--resync"},
		"no beat":            {"--node-name=d --heartbeat-period=1ms", "--heartbeat-period"},
		"no namespace":       {"--node-name=d --namespace=", "--namespace"},
		"no port":            {"--node-name=d --host-link=192.0.2.1", "--host-link"},
		"a link":             {"--node-name=d --host-link=192.0.2.1:9", ""},
		"hasty":              {"--node-name=d --host-link=192.0.2.1:9 --host-timeout=100ms", "--host-timeout"},
		"no misses":          {"--node-name=d --host-link=192.0.2.1:9 --host-misses=0", "--host-misses"},
		"a watchdog":         {"--node-name=d --watchdog=/dev/watchdog", ""},
		"watchdog where":     {"--node-name=d --watchdog=watchdog", "--watchdog"},
		"short lease":        {"--node-name=d --watchdog=/dev/watchdog --lease-duration=29s", "--lease-duration"},
		"broken seconds":     {"--node-name=d --watchdog=/dev/watchdog --watchdog-timeout=1500ms", "--watchdog-timeout"},
		"no drain":           {"--node-name=d --watchdog=/dev/watchdog --lease-drain=0s", "--lease-drain"},
		"no watchdog":        {"--node-name=d --lease-duration=1s", ""},
		"SNAP may stay away": {"--node-name=d --snap-away=0s", ""},
		"SNAP may not go":    {"--node-name=d --snap-away=10ms", "--snap-away"},
		"no workers":         {"--node-name=d --concurrency=0", "--concurrency"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv(nodeEnv, "")
			var o options
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.bind(fs)
			if err := fs.Parse(strings.Fields(c.flags)); err != nil {
				t.Fatal(err)
			}
			err := o.validate()
			if (err == nil) != (c.words == "") || (err != nil && !strings.Contains(err.Error(), c.words)) {
				t.Fatalf("got %v, want words about %q", err, c.words)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Setenv(nodeEnv, "dpu-7")
	var o options
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.bind(fs)
	if err := fs.Parse(nil); err != nil {
		t.Fatal(err)
	}
	if o.node != "dpu-7" || o.flags.Concurrency != 8 || o.validate() != nil {
		t.Fatalf("got %+v, %v", o, o.validate())
	}
}

// TestPluginsChanged: a change of the plugins is reported, and what waits is
// looked at again; what is well is not.
func TestPluginsChanged(t *testing.T) {
	scheme, err := kube.NewScheme(storagev1alpha1.AddDPUToScheme)
	if err != nil {
		t.Fatal(err)
	}
	attachment := func(name, message string) *storagev1alpha1.VolumeAttachment {
		a := &storagev1alpha1.VolumeAttachment{}
		a.Name, a.Namespace, a.Spec.NodeName, a.Status.Message = name, "ns", "dpu-1", message
		return a
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(attachment("well", ""), attachment("waits", "plugin local does not answer")).Build()
	queue := attachments.NewQueue(&attachments.Store{DPU: kube.Cluster{Client: c}, Node: "dpu-1", Namespace: "ns"})
	changed := report.NewSignal()
	pluginsChanged(t.Context(), changed, queue)()
	if len(changed.C()) != 1 || len(queue.Events()) != 1 {
		t.Fatalf("%d reports are due, %d attachments", len(changed.C()), len(queue.Events()))
	}
	if e := <-queue.Events(); e.Object.GetName() != "waits" {
		t.Errorf("looks again at %s", e.Object.GetName())
	}
}

// TestMadeWithoutAPIServer: the manager of a DPU's driver, and what its parts watch, are made while the
// API server is away.
func TestMadeWithoutAPIServer(t *testing.T) {
	var o options
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.bind(fs)
	if err := fs.Parse([]string{"--node-name=dpu-1", "--kubeconfig=" + kubetest.Away(t), "--metrics-bind-address=0", "--health-probe-bind-address=0"}); err != nil {
		t.Fatal(err)
	}
	mgr, err := o.manager()
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.Hold(t.Context(), mgr.GetCache(), &storagev1alpha1.VolumeAttachment{}, &moorv1alpha1.WriterClaim{}, &moorv1alpha1.DPUStorageNode{}); err != nil {
		t.Error(err)
	}
}
