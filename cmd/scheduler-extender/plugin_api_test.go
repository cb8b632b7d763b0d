//go:build api

package main

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	bin := t.TempDir()
	if err := kubebuild.Scheduler(t.Context(), filepath.Join("..", ".."), bin, t.Output()); err != nil {
		t.Fatal(err)
	}
	b.schedule(t, filepath.Join(bin, kubebuild.SchedulerProgram), b.pluginConfig(t))
	hits := b.place(t, "plugin", []string{pluginScheduler})
	t.Logf("the plugin puts %d of %d pods on a node with a replica, of %d nodes", hits, simulatedPods, *simulatedNodes)
	if hits != simulatedPods {
		t.Errorf("%d of %d pods are on no node with a replica", simulatedPods-hits, simulatedPods)
	}
	t.Run("replica on a closed node", b.replicaOnAClosedNode)
	t.Run("refused everywhere", b.refusedEverywhere)
}

// pluginConfig is that of the scheduler with the plugin, as its ConfigMap has it; a
// kubeconfig of its account stands for the account of its pod.
func (b *bed) pluginConfig(t *testing.T) string {
	shipped := &corev1.ConfigMap{}
	if err := b.Get(t.Context(), client.ObjectKey{Namespace: statetest.Namespace, Name: pluginScheduler}, shipped); err != nil {
		t.Fatal(err)
	}
	account := b.kubeconfig("system:serviceaccount:" + statetest.Namespace + ":" + pluginScheduler)
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

// replicaOnAClosedNode: the nodes with replicas are healthy, and closed to pods.
func (b *bed) replicaOnAClosedNode(t *testing.T) {
	pvc, pv := volume("closed")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "closed"}}
	node.Spec.Unschedulable = true
	for _, o := range []client.Object{pv, pvc, node, storageNode("closed", 4), statetest.Attachment("closed", "closed", statetest.PreEmulated)} {
		b.create(t, o)
	}
	pod := workload("closed", 0, pluginScheduler)
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "closed"
	pod.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}}
	b.create(t, pod)
	if node := b.placed(t, pod); node == "closed" {
		t.Error("the pod is on the closed node")
	}
}

// refusedEverywhere: the only node that the pod may have has a dead DPU, until it
// is alive.
func (b *bed) refusedEverywhere(t *testing.T) {
	pvc, pv := volume("refused")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "refusing", Labels: map[string]string{"only": "this"}}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10Gi"), corev1.ResourceCPU: resource.MustParse("10Gi"), corev1.ResourceMemory: resource.MustParse("10Gi")}
	dead := storageNode("refusing", 4)
	meta.SetStatusCondition(&dead.Status.Conditions, metav1.Condition{Type: moorv1alpha1.ConditionDPUAlive, Status: metav1.ConditionFalse, Reason: "Silent"})
	for _, o := range []client.Object{pv, pvc, node, dead} {
		b.create(t, o)
	}
	pod := workload("refused", 0, pluginScheduler)
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "refused"
	pod.Spec.NodeSelector = map[string]string{"only": "this"}
	b.create(t, pod)
	b.until(t, "the pod is refused for the DPU", func() (bool, string) {
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err.Error()
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "DPU dpu-refusing is not alive (Silent)") {
				return true, ""
			}
		}
		return false, pod.Status.String()
	})
	alive := []byte(`{"status":{"conditions":[]}}`)
	if err := b.Status().Patch(t.Context(), dead, client.RawPatch(types.MergePatchType, alive)); err != nil {
		t.Fatal(err)
	}
	if node := b.placed(t, pod); node != "refusing" {
		t.Error(node)
	}
}
