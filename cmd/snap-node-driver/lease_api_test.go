//go:build api

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/unixsocket"
	"github.com/moor-storage/moor/reference/softdog"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

// ownProcess is set in the process in which the driver of a test runs alone.
const ownProcess = "MOOR_TEST_OWN_PROCESS"

// TestLeaseOnAServer: the whole process gives a lease, takes its volume away when
// its heartbeats are refused, and shows it again once they are answered.
func TestLeaseOnAServer(t *testing.T) {
	if os.Getenv(ownProcess) == "" { // the names of controllers are taken in this one
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLeaseOnAServer$", "-test.v")
		cmd.Env = append(os.Environ(), ownProcess+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	w := newWorld(t)
	socket := filepath.Join(w.root, "w")
	listener, err := unixsocket.Listen(socket)
	w.must(err)
	var resets atomic.Int32
	dog := &softdog.Server{Reset: func() { resets.Add(1) }}
	apiserver.InBackground(w.t, "watchdog", func(ctx context.Context) error { dog.Serve(ctx, listener); return nil })
	w.startDriver("--watchdog="+socket, "--watchdog-timeout=60s", "--lease-duration=4s", "--lease-drain=1s")

	beat := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	until(w, "gives a lease", beat, func(bool) bool {
		d := beat.Status.DPU
		return d != nil && d.Lease != nil && d.Lease.Sequence == d.Sequence && d.Lease.DurationMillis == 4000 && d.Lease.GraceMillis == 182_800
	})
	a := w.attachment()
	w.claim(&moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: node, Attachment: a.Name, Epoch: 1})
	_, err = kube.Patch(t.Context(), w, a, func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 1 })
	w.must(err)
	until(w, "attached", a, func(bool) bool { return a.Status.DPU.Attached })

	w.must(w.Delete(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "moor:snap-node-driver"}}))
	w.settled("withdrawn at the end of the lease", func() bool { return w.visible() == 0 })
	claim := &moorv1alpha1.WriterClaim{}
	w.must(w.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "v1"}, claim))
	if claim.Status.Phase != moorv1alpha1.ClaimGranted {
		t.Errorf("the claim is %+v", claim.Status)
	}
	w.must(kit.Apply(t.Context(), w, filepath.Join("..", "..", "deploy", "dpu", "snap-node-driver-rbac.yaml")))
	w.settled("shown again", func() bool { return w.visible() == 1 })
	if resets.Load() != 0 {
		t.Error("a driver that obeys was reset")
	}
}
