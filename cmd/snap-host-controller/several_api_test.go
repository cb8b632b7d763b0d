//go:build api

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

// ownFlags are the flags of the controller that a process of its own is, one in a line.
const ownFlags = "MOOR_TEST_OWN_FLAGS"

// siteOf is a DPU cluster with the whole program for it, in a process of its own.
type siteOf struct {
	*apiserver.One
	// line is the controller's way to its API server.
	line *apiserver.Line
}

// world is a host cluster with two DPU clusters.
type world struct {
	t     *testing.T
	host  *apiserver.One
	sites map[string]*siteOf
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// openWorld starts all of it, with a host in each DPU cluster.
func openWorld(t *testing.T) *world {
	w := &world{t: t, host: apiserver.StartOne(t, apiserver.Host), sites: map[string]*siteOf{}}
	w.host.Deploy("snap-host-controller-rbac.yaml")
	for _, name := range []string{"east", "west"} {
		s := &siteOf{One: apiserver.StartOne(t, apiserver.DPU)}
		s.line = s.NewLine()
		w.sites[name] = s
		s.Deploy("snap-host-controller-rbac.yaml")
		for _, o := range []client.Object{kubetest.StorageClass("vendor"), kubetest.CSIDriver("vendor", nil)} {
			w.must(s.Create(t.Context(), o))
		}
		n := kubetest.DPUStorageNode("host-" + name)
		n.Spec.DPUCluster = "dpf/" + name
		w.must(w.host.Create(t.Context(), n))
		w.run("--kubeconfig="+w.host.Kubeconfig("snap-host-controller"), "--dpu-cluster-kubeconfig="+s.KubeconfigOver(s.line, "snap-host-controller"),
			"--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect", "--leader-election-namespace="+kit.Namespace,
			"--several-dpu-clusters", "--dpucluster-namespace=dpf", "--dpucluster-name="+name)
	}
	for _, o := range []client.Object{kubetest.DPUStorageVendor("vendor"), kubetest.DPUStoragePolicy("policy", "vendor")} {
		o.SetNamespace(kit.Namespace)
		w.must(w.host.Create(t.Context(), o))
	}
	return w
}

// run runs the program in a process of its own until the test ends.
func (w *world) run(args ...string) {
	log, err := os.Create(filepath.Join(w.t.TempDir(), "log"))
	w.must(err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestSeveralDPUClusters$")
	cmd.Env = append(os.Environ(), ownFlags+"="+strings.Join(args, "\n"))
	cmd.Stdout, cmd.Stderr = log, log
	w.must(cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			w.t.Errorf("the controller with %v: %v", args[len(args)-1], err)
		}
		if w.t.Failed() {
			said, _ := os.ReadFile(log.Name())
			w.t.Logf("%s:\n%s", args[len(args)-1], said)
		}
	})
}

// play is what the processes of a DPU cluster do once.
func (s *siteOf) play(ctx context.Context) error {
	for _, list := range []client.ObjectList{&storagev1alpha1.StoragePolicyList{}, &storagev1alpha1.VolumeList{}, &storagev1alpha1.VolumeAttachmentList{}} {
		if err := s.List(ctx, list, client.InNamespace(kit.Namespace)); err != nil {
			return err
		}
		var err error
		switch list := list.(type) {
		case *storagev1alpha1.StoragePolicyList:
			err = playAll(ctx, s, list.Items, func(o *storagev1alpha1.StoragePolicy) { hostclustertest.PlayPolicy(o) })
		case *storagev1alpha1.VolumeList:
			err = playAll(ctx, s, list.Items, func(o *storagev1alpha1.Volume) { hostclustertest.PlayVolume(o) })
		case *storagev1alpha1.VolumeAttachmentList:
			err = playAll(ctx, s, list.Items, func(o *storagev1alpha1.VolumeAttachment) {
				claim := &moorv1alpha1.WriterClaim{}
				if found, err := kube.Find(ctx, s, client.ObjectKey{Namespace: kit.Namespace, Name: o.VolumeName()}, claim); err != nil || !found {
					claim = nil
				}
				hostclustertest.PlayAttachment(o, claim)
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// playAll does to each object what act does; what has changed meanwhile is left for the next time.
func playAll[T any, O interface {
	*T
	client.Object
}](ctx context.Context, s *siteOf, items []T, act func(O)) error {
	for i := range items {
		var o O = &items[i]
		want := o.DeepCopyObject().(O)
		act(want)
		played := want.DeepCopyObject().(O)
		if err := s.Patch(ctx, want, client.MergeFrom(o)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("play %T %s: %w", o, o.GetName(), err)
		}
		if err := s.Status().Patch(ctx, played, client.MergeFrom(o)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("play the status of %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// until plays the DPU clusters that are there until an object of the host cluster is as it is to be.
func until[T client.Object](w *world, o T, what string, done func(T) bool) {
	w.t.Helper()
	o.SetNamespace(kit.Namespace)
	err := wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, s := range w.sites {
			if err := s.play(ctx); err != nil {
				return false, err
			}
		}
		found, err := kube.Find(ctx, w.host, client.ObjectKeyFromObject(o), o)
		return found && done(o), err
	})
	if err != nil {
		w.t.Fatalf("%s: %v; %T is %+v", what, err, o, o)
	}
}

func in(cluster string) func(*storagev1alpha1.DPUVolume) bool {
	return func(v *storagev1alpha1.DPUVolume) bool {
		return v.Status.Phase == storagev1alpha1.DPUVolumeBound && *v.Status.State.DPUCluster == storagev1alpha1.ObjectReference{Namespace: "dpf", Name: cluster}
	}
}

func shown(a *storagev1alpha1.DPUVolumeAttachment) bool {
	return a.Status.DPUAttached != nil && *a.Status.DPUAttached
}

// TestSeveralDPUClusters: whole programs, one for each of two DPU clusters, under the account of the manifests: each
// sees to its own hosts, volumes and attachments, and does so while the API server of the other is away.
func TestSeveralDPUClusters(t *testing.T) {
	if args := os.Getenv(ownFlags); args != "" { // the names of controllers are those of a process
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		o, err := parse(t, strings.Split(args, "\n")...)
		if err == nil {
			err = o.run(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	w := openWorld(t)
	for name := range w.sites {
		v := kubetest.DPUVolume("vol-"+name, corev1.ReadWriteOnce)
		v.Namespace, v.Spec.AccessibleFrom = kit.Namespace, []map[string]string{{moorv1alpha1.TopologyDPUCluster: "dpf." + name}}
		a := kubetest.DPUVolumeAttachment(v.Name, "host-"+name)
		a.Namespace = kit.Namespace
		w.must(w.host.Create(t.Context(), v))
		w.must(w.host.Create(t.Context(), a))
		until(w, v, "a volume for "+name, in(name))
		until(w, a, "it is shown to the host of "+name, shown)
		if a.Status.Epoch != 1 || a.Status.DPUCluster != "dpf/"+name {
			t.Errorf("attached in %s: %+v", name, a.Status)
		}
		lease := &coordinationv1.Lease{}
		w.must(w.host.Get(t.Context(), client.ObjectKey{Namespace: kit.Namespace, Name: "snap-host-controller.dpu.nvidia.com.dpf." + name}, lease))
	}
	across := kubetest.DPUVolumeAttachment("vol-east", "host-west")
	across.Namespace = kit.Namespace
	w.must(w.host.Create(t.Context(), across))
	until(w, across, "one of east says that a host of west has no DPU there", func(a *storagev1alpha1.DPUVolumeAttachment) bool {
		return strings.Contains(a.Status.Message, "no DPUStorageNode says that node host-west has a DPU in DPU cluster dpf/east")
	})
	moved := kubetest.DPUStorageNode("host-west")
	w.must(w.host.Get(t.Context(), client.ObjectKeyFromObject(moved), moved))
	moved.Spec.DPUCluster = "dpf/east"
	if err := w.host.Update(t.Context(), moved); err == nil || !strings.Contains(err.Error(), "the host is in DPU cluster dpf/west") {
		t.Errorf("a host is moved to another DPU cluster: %v", err)
	}

	w.sites["west"].line.Cut()
	for i := range 8 { // of which west would be the first choice of some
		v := kubetest.DPUVolume(fmt.Sprintf("later-%d", i), corev1.ReadWriteOnce)
		v.Namespace = kit.Namespace
		w.must(w.host.Create(t.Context(), v))
	}
	for i := range 8 {
		until(w, kubetest.DPUVolume(fmt.Sprintf("later-%d", i)), "a volume while west is away", in("east"))
	}
	waits := kubetest.DPUVolume("waits", corev1.ReadWriteOnce)
	waits.Namespace, waits.Spec.AccessibleFrom = kit.Namespace, []map[string]string{{moorv1alpha1.TopologyDPUCluster: "dpf.west"}}
	w.must(w.host.Create(t.Context(), waits))
	w.sites["west"].line.Mend()
	until(w, waits, "it is back", in("west"))
}
