package pods

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// wait returns when what is waited for is so.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	err := apiwait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func pav(name string, selector map[string]string) *pavv1alpha1.PavProvisioner {
	return &pavv1alpha1.PavProvisioner{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{pavv1alpha1.FinalizerProvisioner}},
		Spec:       pavv1alpha1.PavProvisionerSpec{VolumeStaging: pavv1alpha1.VolumeStaging{NodeSelector: selector}},
	}
}

func (b *bed) reconcileDriver(name string) {
	b.t.Helper()
	_, err := b.drivers.Reconcile(b.t.Context(), kube.RequestFor("", name))
	b.must(err)
}

// begin runs the drivers, and returns what ends them.
func (b *bed) begin() (end func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.drivers.Start(ctx) }()
	return func() { b.t.Helper(); cancel(); b.must(<-done) }
}

func (b *bed) registered(driver string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[driver]
}

// ask calls an endpoint as the kubelet does.
func (b *bed) ask(driver string) (name, nodeID string) {
	b.t.Helper()
	conn, err := grpc.NewClient("unix://"+b.drivers.socket(driver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	b.must(err)
	defer conn.Close()
	info, err := csispec.NewIdentityClient(conn).GetPluginInfo(b.t.Context(), &csispec.GetPluginInfoRequest{})
	b.must(err)
	at, err := csispec.NewNodeClient(conn).NodeGetInfo(b.t.Context(), &csispec.NodeGetInfoRequest{})
	b.must(err)
	return info.GetName(), at.GetNodeId()
}

// An endpoint is served while its provisioner is there, each with its own socket, and nothing is left when
// that goes or the agent ends.
func TestDrivers(t *testing.T) {
	b := newBed(t)
	end := b.begin()
	b.add(pav("crypt", nil), pav("hello", map[string]string{"disk": "fast"}))
	for _, name := range []string{"crypt", "hello"} {
		for range 2 {
			b.reconcileDriver(name)
		}
		wait(t, "that the kubelet knows "+name, func() bool { return b.registered(name) == 1 })
		if driver, id := b.ask(name); driver != name || id != node {
			t.Errorf("driver %s on node %s", driver, id)
		}
	}
	b.reconcileDriver("../etc")
	p := pav("crypt", nil)
	b.must(b.direct.Delete(t.Context(), p)) // its finalizer keeps it
	b.reconcileDriver("crypt")
	if driver, _ := b.ask("crypt"); driver != "crypt" {
		t.Error("it is not served while it is being deleted, and its volumes have to be undone")
	}
	b.must(b.direct.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	b.must(kube.RemoveFinalizers(t.Context(), b.direct, p, pavv1alpha1.FinalizerProvisioner))
	b.reconcileDriver("crypt")
	if _, err := os.Lstat(b.drivers.directory("crypt")); !errors.Is(err, os.ErrNotExist) || len(b.forgot) != 1 {
		t.Errorf("left: %v, forgotten %v", err, b.forgot)
	}
	end()
	if _, err := os.Lstat(b.drivers.socket("hello")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there after the end: %v", err)
	}
	b.reconcileDriver("hello")
	if len(b.drivers.running) != 0 {
		t.Error("an endpoint is started after the end")
	}
}

// A node that a selector does not name serves what it has staged, and no more.
func TestDriversOfSelector(t *testing.T) {
	b := newBed(t)
	defer b.begin()()
	selector := map[string]string{"disk": "slow"}
	b.add(pav("crypt", selector))
	b.reconcileDriver("crypt")
	if b.drivers.running["crypt"] != nil {
		t.Fatal("it is served on a node without the label")
	}
	err := b.drivers.serves(t.Context(), "crypt")
	if !errors.Is(err, provisioner.ErrPrecondition) || !strings.Contains(err.Error(), "disk:slow") || !strings.Contains(err.Error(), node) {
		t.Errorf("%v", err)
	}
	if err := b.drivers.serves(t.Context(), "none"); !errors.Is(err, provisioner.ErrPrecondition) || !strings.Contains(err.Error(), "no PavProvisioner none") {
		t.Errorf("%v", err)
	}
	s := podStaging(moorv1alpha1.PodStagingStaged, stagingPod)
	b.add(s)
	b.reconcileDriver("crypt")
	wait(t, "that the kubelet knows it", func() bool { return b.registered("crypt") == 1 })
	b.remove(s)
	b.reconcileDriver("crypt")
	if b.drivers.running["crypt"] != nil {
		t.Error("it is served, and nothing is staged")
	}
	var n corev1.Node
	b.must(b.direct.Get(t.Context(), client.ObjectKey{Name: node}, &n))
	n.Labels = selector
	b.must(b.direct.Update(t.Context(), &n))
	if all := b.drivers.all(t.Context(), &n); len(all) != 1 || all[0].Name != "crypt" {
		t.Errorf("%v are looked at when the node changes", all)
	}
	b.reconcileDriver("crypt")
	wait(t, "that the kubelet knows it again", func() bool { return b.registered("crypt") == 2 })
}

// What an agent that died has left of an endpoint is taken over, or removed; what is another's stays.
func TestDriversAfterCrash(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"crypt", "old"} {
		b.must(os.MkdirAll(b.drivers.directory(name), 0o755))
		b.must(os.WriteFile(filepath.Join(b.drivers.directory(name), marker), nil, 0o600))
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.drivers.socket(name), Net: "unix"})
		b.must(err)
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	b.must(os.MkdirAll(b.drivers.directory("foreign"), 0o755))
	b.add(pav("crypt", nil))
	defer b.begin()()
	for _, r := range b.drivers.all(t.Context(), nil) {
		b.reconcileDriver(r.Name)
	}
	b.reconcileDriver("foreign")
	wait(t, "that the kubelet knows it", func() bool { return b.registered("crypt") == 1 })
	for name, want := range map[string]bool{"crypt": true, "old": false, "foreign": true} {
		if _, err := os.Lstat(b.drivers.directory(name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if strings.Join(b.forgot, " ") != "old" {
		t.Errorf("forgotten: %v", b.forgot)
	}
}

// A kubelet that refuses a driver, and a socket that another process serves, are tried again.
func TestDriversRetry(t *testing.T) {
	b := newBed(t)
	b.refuses = errors.New("the kubelet refused")
	b.must(os.MkdirAll(b.drivers.directory("taken"), 0o755))
	l, err := net.Listen("unix", b.drivers.socket("taken"))
	b.must(err)
	b.add(pav("crypt", nil), pav("taken", nil))
	defer b.begin()()
	b.reconcileDriver("crypt")
	b.reconcileDriver("taken")
	wait(t, "the third try", func() bool { b.clock.Step(firstPause); return b.registered("crypt") >= 3 })
	if b.registered("taken") != 0 {
		t.Error("a driver whose socket is another's was told to the kubelet")
	}
	b.mu.Lock()
	b.refuses = nil
	b.mu.Unlock()
	l.Close()
	wait(t, "the one that was taken", func() bool { b.clock.Step(longestPause); return b.registered("taken") == 1 })
}

// /pav/ready is noticed, also of a pod that is followed before it has begun; other files are not.
func TestWatcher(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.ready.Start(ctx) }()
	pod := client.ObjectKey{Namespace: "default", Name: stagingPod}
	wait(t, "that the root is watched", func() bool { return len(b.ready.files.WatchList()) == 1 })
	b.ready.follow("../etc", pod)
	b.ready.follow(staging, pod)
	b.must(os.Mkdir(b.root.Path(staging), 0o755))
	told := func() { // the test ends if nothing is told
		t.Helper()
		select {
		case e := <-b.ready.events:
			if client.ObjectKeyFromObject(e.Object) != pod {
				t.Errorf("told of %s", e.Object.GetName())
			}
		case <-t.Context().Done():
			t.Fatal("nothing is told")
		}
	}
	told()
	b.ready.follow(staging, pod)
	b.write(staging, "handle", "x")
	b.write(staging, "new", "")
	b.must(os.Rename(filepath.Join(b.root.Path(staging), "new"), filepath.Join(b.root.Path(staging), "ready")))
	told()
	b.ready.forget(pod)
	if n := len(b.ready.files.WatchList()); n != 1 || len(b.ready.all()) != 0 {
		t.Errorf("%d watches of %v", n, b.ready.all())
	}
	cancel()
	b.must(<-done)
}

func TestNew(t *testing.T) {
	for name, o := range map[string]Options{
		"node": {Boot: boot, Root: "/r", Kubelet: "/k"}, "boot": {Node: node, Root: "/r", Kubelet: "/k"},
		"kubelet": {Node: node, Boot: boot, Root: "/r"}, "helper pods": {Node: node, Boot: boot, Kubelet: "/k"},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
