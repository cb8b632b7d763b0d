//go:build api

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

// bed is an API server with the host cluster's kinds and the extender on it,
// whose account has the rights of the manifest and no others.
type bed struct {
	*apiserver.One
	t       *testing.T
	address string
	health  string
	// line is the extender's way to the API server.
	line *apiserver.Line
	// simulated is true once there are the simulated nodes.
	simulated bool
}

// The process registers its metrics once, so all that is tested on it is one
// test, in the order of a cluster's life.
func TestExtender(t *testing.T) {
	b := start(t)
	t.Run("answers", b.answers)
	t.Run("real scheduler", b.realScheduler)
	t.Run("plugin", b.plugin)
	t.Run("API server lost", b.lost)
}

func start(t *testing.T) *bed {
	one := apiserver.StartOne(t, apiserver.Host)
	b := &bed{One: one, t: t, address: free(t), health: free(t), line: one.NewLine()}
	for _, manifest := range []string{"rbac.yaml", "extender.yaml", "second-scheduler.yaml", "plugin-scheduler.yaml", "plugin-scheduler-deployment.yaml"} {
		if err := kit.Apply(t.Context(), b, filepath.Join(manifests, manifest)); err != nil {
			t.Fatal(err)
		}
	}
	b.run(b.kubeconfig("scheduler-extender"))
	return b
}

// free is an address on which nothing listens.
func free(t *testing.T) string {
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// kubeconfig is that of a ServiceAccount, over the line.
func (b *bed) kubeconfig(account string) string { return b.KubeconfigOver(b.line, account) }

// run runs the process' whole wiring in this one, until the test ends.
func (b *bed) run(kubeconfig string) {
	var o options
	ctrl.SetLogger(klog.Background())
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.bind(fs)
	err := fs.Parse([]string{
		"--kubeconfig=" + kubeconfig, "--bind-address=" + b.address, "--health-probe-bind-address=" + b.health,
		"--metrics-bind-address=0", "--probe-period=200ms", "--request-timeout=5s",
	})
	if err != nil {
		b.t.Fatal(err)
	}
	apiserver.InBackground(b.t, "scheduler-extender", o.run)
	b.until(b.t, "ready", func() (bool, string) {
		answer, err := http.Get("http://" + b.health + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		words, _ := io.ReadAll(answer.Body)
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			return false, err.Error()
		}
		return answer.StatusCode == http.StatusOK && conn.Close() == nil, string(words)
	})
}

func (b *bed) until(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (done bool, _ error) {
		done, last = ok()
		return done, nil
	})
	if err != nil {
		t.Fatalf("%s: %v; last seen: %s", what, err, last)
	}
}

// create makes an object with the status that it has.
func (b *bed) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := b.make(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func (b *bed) make(ctx context.Context, o client.Object) error {
	wanted := o.DeepCopyObject().(client.Object)
	if err := b.Create(ctx, o); err != nil {
		return err
	}
	if _, isPod := o.(*corev1.Pod); isPod {
		return nil // its status is the scheduler's, who may have written it by now
	}
	wanted.SetResourceVersion(o.GetResourceVersion())
	wanted.SetUID(o.GetUID())
	err := b.Status().Update(ctx, wanted)
	if apierrors.IsNotFound(err) {
		return nil // the kind has no status of its own
	}
	return err
}

// volume is a claim and its volume as an API server takes them, fully bound.
func volume(name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	pvc, pv := statetest.Volume(name)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	pvc.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pvc.Spec.StorageClassName = new(string)
	pvc.Spec.Resources.Requests = size
	pv.Spec.AccessModes, pv.Spec.Capacity = pvc.Spec.AccessModes, size
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name}
	pv.Status.Phase = corev1.VolumeBound
	return pvc, pv
}

func storageNode(name string, free int64) *moorv1alpha1.DPUStorageNode {
	n := statetest.Node(name, free)
	n.Status.DPU.Time = metav1.Now()
	return n
}

// ask is what a scheduler asks about a pod with one claim.
func (b *bed) ask(verb, claim string, nodes ...string) string {
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: statetest.Pod(claim), NodeNames: &nodes})
	if err != nil {
		return err.Error()
	}
	answer, err := http.Post("http://"+b.address+"/"+verb, "application/json", bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	words, _ := io.ReadAll(answer.Body)
	return strings.TrimSpace(fmt.Sprintf("%d %s", answer.StatusCode, words))
}

func (b *bed) answers(t *testing.T) {
	pvc, pv := volume("first")
	for _, o := range []client.Object{
		pv, pvc, storageNode("warm", 4), storageNode("cold", 4), storageNode("full", 0),
		statetest.Attachment("first", "warm", statetest.PreEmulated),
	} {
		b.create(t, o)
	}
	b.until(t, "the replica's node is preferred", func() (bool, string) {
		got := b.ask("prioritize", "first", "cold", "warm", "full")
		return got == `200 [{"Host":"warm","Score":7}]`, got
	})
	want := `200 {"Nodes":null,"NodeNames":["cold","warm"],` +
		`"FailedNodes":{"full":"the DPU has 0 vf functions free, and the pod's volumes need 1 more"},` +
		`"FailedAndUnresolvableNodes":{"none":"the node has no DPUStorageNode: it has no DPU, or snap-csi-plugin does not run there"},"Error":""}`
	if diff := cmp.Diff(want, b.ask("filter", "first", "cold", "none", "warm", "full")); diff != "" {
		t.Error(diff)
	}
	attachment := statetest.Attachment("first", "warm", statetest.PreEmulated)
	if err := b.Delete(t.Context(), attachment); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the replica is forgotten", func() (bool, string) {
		got := b.ask("prioritize", "first", "cold", "warm")
		return got == "200 []", got
	})
	b.create(t, statetest.Attachment("first", "warm", statetest.Attached))
	b.until(t, "it comes back as the primary", func() (bool, string) {
		got := b.ask("prioritize", "first", "cold", "warm")
		return got == `200 [{"Host":"warm","Score":10}]`, got
	})
}

// lost cuts the line to the API server: the answers stay, and catch up with
// what happened meanwhile once it is mended.
func (b *bed) lost(t *testing.T) {
	b.create(t, storageNode("late", 4))
	b.until(t, "the line stands", func() (bool, string) {
		got := b.ask("filter", "first", "late")
		return strings.Contains(got, `"NodeNames":["late"]`), got
	})
	b.line.Cut()
	if err := b.Delete(t.Context(), statetest.Attachment("first", "warm", statetest.Attached)); err != nil {
		t.Fatal(err)
	}
	b.until(t, "it knows how old it is", func() (bool, string) {
		age := gauge(t, "moor_extender_index_age_seconds")
		return age > 1, fmt.Sprint(age)
	})
	if got := b.ask("prioritize", "first", "cold", "warm"); got != `200 [{"Host":"warm","Score":10}]` {
		t.Error(got)
	}
	answer, err := http.Get("http://" + b.health + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Error("not ready without the API server:", answer.Status)
	}
	b.line.Mend()
	b.until(t, "it catches up", func() (bool, string) {
		got := b.ask("prioritize", "first", "cold", "warm")
		return got == "200 []" && gauge(t, "moor_extender_index_age_seconds") < 1, got
	})
}

// gauge is the value of one of the process' metrics.
func gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].Gauge.GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
