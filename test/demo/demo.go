// Package demo shows the main job on the test bed: a pod writes through two
// volumes that a DPU shows to its host, moves to another host, and reads
// everything back. It prints each hop of the chain with its time.
package demo

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
)

const (
	policyTimeout = 2 * time.Minute
	podTimeout    = 5 * time.Minute
)

var podKey = client.ObjectKey{Namespace: "default", Name: "moored-0"}

// demo is one run.
type demo struct {
	bed     *devcluster.Cluster
	clients kit.Clients
	out     io.Writer
}

// Run runs the demo on a bed with Moor on it and prints its report to out.
// What it made stays, for a look around; a second run begins anew.
func Run(ctx context.Context, bed *devcluster.Cluster, out io.Writer) error {
	clients, err := kit.Connect(bed)
	if err != nil {
		return err
	}
	d := &demo{bed: bed, clients: clients, out: out}
	for _, step := range []func(context.Context) error{d.clear, d.admin, d.start, d.write, d.move, d.check, d.failover} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.next()
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) example(name string) string {
	return filepath.Join(d.bed.Root(), "deploy", "examples", name)
}

// clear removes what an earlier run made.
func (d *demo) clear(ctx context.Context) error {
	set := &appsv1.StatefulSet{}
	set.Name, set.Namespace = "moored", podKey.Namespace
	if err := client.IgnoreNotFound(d.clients.Host.Delete(ctx, set, client.PropagationPolicy("Foreground"))); err != nil {
		return fmt.Errorf("remove the StatefulSet of an earlier run: %w", err)
	}
	for _, name := range []string{"files-moored-0", "block-moored-0"} {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Name, claim.Namespace = name, podKey.Namespace
		if err := client.IgnoreNotFound(d.clients.Host.Delete(ctx, claim)); err != nil {
			return fmt.Errorf("remove a claim of an earlier run: %w", err)
		}
	}
	return d.until(ctx, "the volumes of an earlier run are gone", func(ctx context.Context) (bool, error) {
		var volumes storagev1alpha1.DPUVolumeList
		err := d.clients.Host.List(ctx, &volumes)
		return len(volumes.Items) == 0, err
	})
}

// admin applies vendor, policy and StorageClass.
func (d *demo) admin(ctx context.Context) error {
	d.say("\n1. The admin names a vendor, a policy and a StorageClass (deploy/examples/storage*.yaml)")
	if err := kit.Apply(ctx, d.clients.Host, d.example("storage.yaml"), d.example("storage-failover.yaml")); err != nil {
		return err
	}
	return d.until(ctx, "DPUStoragePolicy local is ready", func(ctx context.Context) (bool, error) {
		policy := &storagev1alpha1.DPUStoragePolicy{}
		if err := d.clients.Host.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: "local"}, policy); err != nil {
			return false, err
		}
		for _, c := range policy.Status.Conditions {
			if c.Type == storagev1alpha1.ConditionReady {
				return c.Status == "True", nil
			}
		}
		return false, nil
	})
}

func (d *demo) until(ctx context.Context, what string, done wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, policyTimeout, true, done); err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

// start applies the StatefulSet and times every hop until the pod runs.
func (d *demo) start(ctx context.Context) error {
	d.say("\n2. A user starts a pod with a file system and a raw block device (deploy/examples/statefulset.yaml)")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeline, err := kit.Watch(ctx, append(volumeHops(d.clients), podHops(d.clients, d.bed.Options().AttachMode)...)...)
	if err != nil {
		return err
	}
	if err := kit.Apply(ctx, d.clients.Host, d.example("statefulset.yaml")); err != nil {
		return err
	}
	if err := timeline.Wait(ctx, podTimeout); err != nil {
		return err
	}
	d.table(timeline)
	return nil
}

// table prints when each hop was seen; what a replica had done in advance was
// there before.
func (d *demo) table(timeline *kit.Timeline) {
	for _, mark := range timeline.Marks() {
		when := fmt.Sprintf("%.3f s", mark.At.Seconds())
		if mark.At == 0 {
			when = "before"
		}
		d.say("   %10s  %s", when, mark.Name)
	}
}

// text is what the pod writes to both volumes.
const text = "moored through a DPU"

func (d *demo) write(ctx context.Context) error {
	pod, err := kit.AwaitRunning(ctx, d.clients.Host, podKey, "", podTimeout)
	if err != nil {
		return err
	}
	d.say("\n3. The pod, on %s, writes both and asks for nothing less than fsync", pod.Spec.NodeName)
	_, err = kit.Exec(ctx, d.bed, podKey, fmt.Sprintf(
		"echo '%[1]s' | dd of=/data/text conv=fsync 2>/dev/null && echo '%[1]s' | dd of=/dev/xvda bs=4096 conv=sync,fsync 2>/dev/null", text))
	return err
}

// move drains the pod's host by hand and times every hop until it runs
// elsewhere.
func (d *demo) move(ctx context.Context) error {
	pod, err := kit.AwaitRunning(ctx, d.clients.Host, podKey, "", podTimeout)
	if err != nil {
		return err
	}
	d.say("\n4. %s is cordoned and the pod deleted: it moves with its volumes", pod.Spec.NodeName)
	if err := kit.Cordon(ctx, d.clients.Host, pod.Spec.NodeName, true); err != nil {
		return err
	}
	defer func() { _ = kit.Cordon(context.WithoutCancel(ctx), d.clients.Host, pod.Spec.NodeName, false) }()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	timeline, err := kit.Watch(watching, moveHops(d.clients, d.bed.Options().AttachMode, pod)...)
	if err != nil {
		return err
	}
	if err := d.clients.Host.Delete(ctx, pod); err != nil {
		return fmt.Errorf("delete pod %s: %w", podKey, err)
	}
	if err := timeline.Wait(ctx, podTimeout); err != nil {
		return err
	}
	d.table(timeline)
	return nil
}

// check reads both volumes back on the new host.
func (d *demo) check(ctx context.Context) error {
	pod, err := kit.AwaitRunning(ctx, d.clients.Host, podKey, "", podTimeout)
	if err != nil {
		return err
	}
	for _, from := range []string{"cat /data/text", "head -n 1 /dev/xvda"} {
		got, err := kit.Exec(ctx, d.bed, podKey, from)
		if err != nil {
			return err
		}
		if strings.TrimSpace(got) != text {
			return fmt.Errorf("%q on %s gives %q: %q was written and acknowledged; this must never happen", from, pod.Spec.NodeName, got, text)
		}
	}
	d.say("\n5. On %s the pod reads both back: nothing that was acknowledged is lost", pod.Spec.NodeName)
	return nil
}

func (d *demo) next() {
	d.say(`
The clusters are still up. Look around:
   export PATH=%s:%s:$PATH
   export KUBECONFIG=%s          # the host cluster
   kubectl get dpuv,dpuva -n %s
   kubectl get dpusn
   kubectl --kubeconfig %s get wc -n %s   # the DPU cluster
   moor-dev status; moor-dev logs snap-node-driver-dpu-1
Try: kubectl delete pod moored-0; kubectl exec moored-0 -- cat /data/text
When you are done: make down`,
		d.bed.BinDir(), d.bed.KubeBinDir(), d.bed.Kubeconfig(devcluster.HostCluster), kit.Namespace,
		d.bed.Kubeconfig(devcluster.DPUCluster), kit.Namespace)
}
