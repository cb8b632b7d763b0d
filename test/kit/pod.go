package kit

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster"
)

// Image is the one image for pods that the test bed has.
const Image = "docker.io/library/busybox:local"

// Exec runs a shell command in a pod's first container and returns what it
// printed.
func Exec(ctx context.Context, c *devcluster.Cluster, pod client.ObjectKey, command string) (string, error) {
	kubectl := exec.CommandContext(ctx, filepath.Join(c.KubeBinDir(), "kubectl"), "--kubeconfig", c.Kubeconfig(devcluster.HostCluster),
		"exec", "-n", pod.Namespace, pod.Name, "--", "sh", "-c", command)
	var out, failure bytes.Buffer
	kubectl.Stdout, kubectl.Stderr = &out, &failure
	if err := kubectl.Run(); err != nil {
		return out.String(), fmt.Errorf("run %q in pod %s: %w: %s", command, pod, err, failure.String())
	}
	return out.String(), nil
}

// AwaitRunning waits until the pod, of a UID other than not, runs and is
// ready, and returns it.
func AwaitRunning(ctx context.Context, c client.Client, key client.ObjectKey, not string, timeout time.Duration) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, key, pod); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return string(pod.UID) != not && pod.DeletionTimestamp.IsZero() && Ready(pod), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait until pod %s runs: %w: %s", key, err, Story(ctx, c, pod))
	}
	return pod, nil
}

// Ready reports whether the pod runs and is ready.
func Ready(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
			return pod.Status.Phase == corev1.PodRunning
		}
	}
	return false
}

// Preferring prefers a host; "" is none.
func Preferring(host string) *corev1.Affinity {
	if host == "" {
		return nil
	}
	here := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{here}}},
	}}}
}

// Cordon keeps new pods off a node, or lets them come again.
func Cordon(ctx context.Context, c client.Client, node string, cordoned bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned)
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("cordon node %s: %w", node, err)
	}
	return nil
}

// Story tells what the pod's events and phase say: the first thing to read
// when it does not run.
func Story(ctx context.Context, c client.Client, pod *corev1.Pod) string {
	out := fmt.Sprintf("pod %s/%s on %q is %s", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase)
	var events corev1.EventList
	if err := c.List(context.WithoutCancel(ctx), &events, client.InNamespace(pod.Namespace)); err != nil {
		return out
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.InvolvedObject.Name == pod.Name {
			out += fmt.Sprintf("\n  %s: %s", e.Reason, e.Message)
		}
	}
	return out
}
