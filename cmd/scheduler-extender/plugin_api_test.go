//go:build api

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
	"github.com/moor-storage/moor/test/devcluster/kubebuild"
)

const pluginScheduler = "moor-plugin-scheduler"

// The real kube-scheduler with the plugin, as shipped and under its account, looks
// at a share of the nodes alone, and puts every pod on a node with a replica of its
// volume all the same; elsewhere, at once, if those cannot take it; and tries a pod
// that it refused again when a node can serve it.
func (b *bed) plugin(t *testing.T) {
	b.simulate(t)
	b.special(t)
	bin := t.TempDir()
	if err := kubebuild.Scheduler(t.Context(), filepath.Join("..", ".."), bin, t.Output()); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(bin, kubebuild.SchedulerProgram)
	b.schedule(t, binary, b.pluginConfig(t))
	hits := b.place(t, "plugin", []string{pluginScheduler})
	t.Logf("the plugin puts %d of %d pods on a node with a replica, of %d nodes", hits, simulatedPods, *simulatedNodes)
	if hits != simulatedPods {
		t.Errorf("%d of %d pods are on no node with a replica", simulatedPods-hits, simulatedPods)
	}
	t.Run("replica on a closed node", b.replicaOnAClosedNode)
	t.Run("refused everywhere", func(t *testing.T) { b.refusedEverywhere(t, pluginScheduler, "refusing") })
	t.Run("replica's node refused by an extender", func(t *testing.T) { b.refusedByAnExtender(t, binary) })
}

// pluginConfig is that of the scheduler with the plugin, as its ConfigMap has it; a
// kubeconfig of its account stands for the account of its pod.
func (b *bed) pluginConfig(t *testing.T) string {
	shipped := &corev1.ConfigMap{}
	if err := b.Get(t.Context(), client.ObjectKey{Namespace: statetest.Namespace, Name: pluginScheduler}, shipped); err != nil {
		t.Fatal(err)
	}
	account := b.kubeconfig(pluginScheduler)
	return strings.Replace(shipped.Data["config.yaml"], "leaderElection:", "clientConnection: {kubeconfig: "+account+"}\nleaderElection:", 1)
}

// placed waits until a pod has a node, and returns it.
func (b *bed) placed(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	b.until(t, "the pod has a node", func() (bool, string) {
		err := b.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)
		return err == nil && pod.Spec.NodeName != "", pod.Status.String()
	})
	return pod.Spec.NodeName
}

// special makes the volumes and nodes of the cases below before any scheduler with
// the plugin starts, which then knows them when their pods come.
func (b *bed) special(t *testing.T) {
	closed := worker("closed")
	closed.Spec.Unschedulable = true
	for _, o := range []client.Object{
		closed, storageNode("closed", 4), statetest.Attachment("closed", "closed", statetest.PreEmulated),
		worker("extended"), storageNode("extended", 4), statetest.Attachment("extended", "extended", statetest.PreEmulated),
	} {
		b.create(t, o)
	}
	b.claim(t, "closed")
	b.claim(t, "extended")
	b.refusing(t, "refusing")
}

// claim makes a claim and its volume.
func (b *bed) claim(t *testing.T, name string) {
	pvc, pv := volume(name)
	b.create(t, pv)
	b.create(t, pvc)
}

// refusing makes a node with a dead DPU, and a claim of its name.
func (b *bed) refusing(t *testing.T, name string) {
	node, dead := worker(name), storageNode(name, 4)
	meta.SetStatusCondition(&dead.Status.Conditions, metav1.Condition{Type: moorv1alpha1.ConditionDPUAlive, Status: metav1.ConditionFalse, Reason: "Silent"})
	b.create(t, node)
	b.create(t, dead)
	b.claim(t, name)
}

// podOf is a pod with the claim of its name.
func podOf(claim, scheduler string) *corev1.Pod {
	pod := workload(claim, 0, scheduler)
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = claim
	return pod
}

// replicaOnAClosedNode: the node with the replica is healthy, and closed to pods.
func (b *bed) replicaOnAClosedNode(t *testing.T) {
	pod := podOf("closed", pluginScheduler)
	pod.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}}
	b.create(t, pod)
	if node := b.placed(t, pod); node == "closed" {
		t.Error("the pod is on the closed node")
	}
}

// refusedByAnExtender: every filter of the scheduler takes the node with the
// replica, and an extender does not. All other nodes were held back for it.
func (b *bed) refusedByAnExtender(t *testing.T, binary string) {
	const name = "extended"
	var asked atomic.Int32
	extender := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if slices.Contains(*args.NodeNames, name) {
			asked.Add(1)
		}
		left := slices.DeleteFunc(*args.NodeNames, func(n string) bool { return n == name })
		_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: &left, FailedNodes: extenderv1.FailedNodesMap{name: "not this one"}})
	}))
	defer extender.Close()
	config := strings.ReplaceAll(b.pluginConfig(t), pluginScheduler, name)
	config = strings.Replace(config, "leaderElect: true", "leaderElect: false", 1)
	b.schedule(t, binary, config+"extenders:\n- {urlPrefix: "+extender.URL+", filterVerb: filter, nodeCacheCapable: true}\n")
	pod := podOf(name, name)
	b.create(t, pod)
	if node := b.placed(t, pod); node == name || asked.Load() == 0 {
		t.Errorf("the pod is on %s; the extender was asked %d times about the replica's node", node, asked.Load())
	}
}

// refusedEverywhere: the only node that the pod may have has a dead DPU, until it
// is alive. Nothing else happens in the cluster then by which a pod is tried again.
func (b *bed) refusedEverywhere(t *testing.T, scheduler, node string) {
	pod := podOf(node, scheduler)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	b.create(t, pod)
	b.until(t, "the pod is refused for the DPU", func() (bool, string) {
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err.Error()
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "DPU dpu-"+node+" is not alive (Silent)") {
				return true, ""
			}
		}
		return false, pod.Status.String()
	})
	alive := []byte(`{"status":{"conditions":[]}}`)
	if err := b.Status().Patch(t.Context(), storageNode(node, 4), client.RawPatch(types.MergePatchType, alive)); err != nil {
		t.Fatal(err)
	}
	if got := b.placed(t, pod); got != node {
		t.Error(got)
	}
}
