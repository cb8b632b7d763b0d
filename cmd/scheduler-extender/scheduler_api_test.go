//go:build api

package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
	"github.com/moor-storage/moor/test/kit/needs"
)

const (
	simulatedPods = 200
	replicasEach  = 3
)

var simulatedNodes = flag.Int("nodes", 1000, "how many nodes are simulated for the real scheduler")

// The real kube-scheduler, with both of the shipped configurations at once, puts
// every pod on a node that has a replica of its volume: 3 of 1,000. The second
// scheduler runs under the account, and so with the rights, of its manifest. Both
// try a pod again that the extender refused, when a node can serve it.
func (b *bed) realScheduler(t *testing.T) {
	binary := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-scheduler")
	if _, err := os.Stat(binary); err != nil {
		needs.Missing(t, "no kube-scheduler beside kube-apiserver: %v", err)
	}
	b.simulate(t)
	for _, scheduler := range schedulers {
		b.refusing(t, "refusing-"+scheduler)
	}
	b.until(t, "the extender knows the last replica", func() (bool, string) {
		for i := range simulatedPods {
			if got := b.ask("prioritize", claimName(i), replicasOf(i)...); strings.Count(got, `"Score":7`) != replicasEach {
				return false, got
			}
		}
		return true, ""
	})
	b.schedule(t, binary, b.defaultConfig(t))
	b.schedule(t, binary, b.secondConfig(t))
	hits := b.place(t, "pod", schedulers)
	t.Logf("%d of %d pods are on a node with a replica, of %d nodes", hits, simulatedPods, *simulatedNodes)
	if hits != simulatedPods {
		t.Errorf("%d of %d pods are on no node with a replica", simulatedPods-hits, simulatedPods)
	}
	for _, scheduler := range schedulers {
		t.Run("refused everywhere, "+scheduler, func(t *testing.T) { b.refusedEverywhere(t, scheduler, "refusing-"+scheduler) })
	}
}

// simulate makes the nodes and the volumes with their replicas, once.
func (b *bed) simulate(t *testing.T) {
	if b.simulated {
		return
	}
	b.simulated = true
	b.inParallel(t, *simulatedNodes, func(i int) []client.Object {
		return []client.Object{worker(workerName(i)), storageNode(workerName(i), 32)}
	})
	b.inParallel(t, simulatedPods, func(i int) []client.Object {
		pvc, pv := volume(claimName(i))
		out := []client.Object{pv, pvc}
		for _, node := range replicasOf(i) {
			out = append(out, statetest.Attachment(claimName(i), node, statetest.PreEmulated))
		}
		return out
	})
}

// worker is a node with room.
func worker(name string) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}

func workerName(i int) string { return fmt.Sprintf("worker-%04d", i) }
func claimName(i int) string  { return fmt.Sprintf("data-%03d", i) }

func replicasOf(pod int) (out []string) {
	for r := range replicasEach {
		out = append(out, workerName((pod*37+r*331)%*simulatedNodes))
	}
	return out
}

// workload tolerates that the simulated nodes are never called ready.
func workload(name string, i int, scheduler string) *corev1.Pod {
	p := statetest.Pod(claimName(i))
	p.Name, p.Spec.SchedulerName = name, scheduler
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	return p
}

// inParallel makes objects, eight lots at a time.
func (b *bed) inParallel(t *testing.T, n int, of func(int) []client.Object) {
	t.Helper()
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < n; i += 8 {
				for _, o := range of(i) {
					if err := b.make(t.Context(), o); err != nil {
						t.Errorf("create %T %s: %v", o, o.GetName(), err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// schedulers are whom the pods name, by turns.
var schedulers = []string{corev1.DefaultSchedulerName, "moor-scheduler"}

// defaultConfig is the default scheduler's configuration as shipped, in which
// only what belongs to the machine is changed.
func (b *bed) defaultConfig(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(manifests, "kube-scheduler-config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	admin := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(admin, b.AdminKubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return b.change(t, string(text), [2]string{"/etc/kubernetes/scheduler.conf", admin}, [2]string{"leaderElect: true", "leaderElect: false"})
}

// secondConfig is that of the second scheduler, as its ConfigMap has it; a
// kubeconfig of its account stands for the account of its pod.
func (b *bed) secondConfig(t *testing.T) string {
	shipped := &corev1.ConfigMap{}
	if err := b.Get(t.Context(), client.ObjectKey{Namespace: statetest.Namespace, Name: "moor-scheduler"}, shipped); err != nil {
		t.Fatal(err)
	}
	account := b.kubeconfig("moor-scheduler")
	return b.change(t, shipped.Data["config.yaml"], [2]string{"leaderElection:", "clientConnection: {kubeconfig: " + account + "}\nleaderElection:"})
}

// change makes the changes that a test's machine needs, and that to the
// extender's address.
func (b *bed) change(t *testing.T, config string, changes ...[2]string) string {
	t.Helper()
	for _, change := range append(changes, [2]string{"http://127.0.0.1:8888", "http://" + b.address}) {
		if strings.Count(config, change[0]) != 1 {
			t.Fatalf("the configuration has not one %q", change[0])
		}
		config = strings.Replace(config, change[0], change[1], 1)
	}
	return config
}

// schedule starts a scheduler.
func (b *bed) schedule(t *testing.T, binary, config string) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	scheduler := exec.Command(binary, "--config="+filepath.Join(dir, "config.yaml"), "--secure-port=0")
	scheduler.Stdout, scheduler.Stderr = log, log
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = scheduler.Process.Kill()
		_ = scheduler.Wait()
		words, err := os.ReadFile(log.Name())
		if err != nil || strings.Contains(string(words), "is forbidden") {
			t.Errorf("the scheduler lacks a right, or said nothing: %v", err)
		}
		if t.Failed() {
			t.Logf("the scheduler said: %s", words[max(0, len(words)-4000):])
		}
		_ = log.Close()
	})
}

// place has the schedulers, by turns, place one pod for each volume, and returns
// how many are on a node with a replica.
func (b *bed) place(t *testing.T, prefix string, schedulers []string) (hits int) {
	t.Helper()
	name := func(i int) string { return fmt.Sprintf("%s-%03d", prefix, i) }
	b.inParallel(t, simulatedPods, func(i int) []client.Object {
		return []client.Object{workload(name(i), i, schedulers[i%len(schedulers)])}
	})
	on := map[string]string{}
	b.until(t, "every pod has a node", func() (bool, string) {
		var pods corev1.PodList
		if err := b.List(t.Context(), &pods); err != nil {
			return false, err.Error()
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName != "" && strings.HasPrefix(p.Name, prefix+"-") {
				on[p.Name] = p.Spec.NodeName
			}
		}
		return len(on) == simulatedPods, fmt.Sprintf("%d of %d pods have a node", len(on), simulatedPods)
	})
	for i := range simulatedPods {
		if slices.Contains(replicasOf(i), on[name(i)]) {
			hits++
			continue
		}
		t.Logf("%s is on %s, its replicas on %v", name(i), on[name(i)], replicasOf(i))
	}
	return hits
}
