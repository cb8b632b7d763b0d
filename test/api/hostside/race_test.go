//go:build api

package hostside

import (
	"context"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/attachment"
	"github.com/moor-storage/moor/test/kit"
)

// rounds of the race for one volume.
const rounds = 100

// TestRace lets two hosts race for one single-writer volume, again and again.
func TestRace(t *testing.T) {
	r := newRace(t, "race")
	history := r.watch(t)
	var epoch int64
	for round := range rounds {
		r.attach(t)
		claim := r.claim(t)
		if claim.Phase != moorv1alpha1.ClaimGranted || claim.Epoch != epoch+1 {
			t.Fatalf("round %d: the claim is %+v, want it granted under epoch %d", round, claim, epoch+1)
		}
		epoch = claim.Epoch
		r.judgeRound(t, claim)
		r.detach(t)
		if claim := r.claim(t); claim.Phase != moorv1alpha1.ClaimFree || claim.Epoch != epoch {
			t.Fatalf("round %d: after detach the claim is %+v", round, claim)
		}
	}
	lawful(t, history(epoch))
}

// race is two hosts and a volume that both want.
type race struct {
	volume  string
	hosts   []string
	hosting *attachment.Reconciler
	fence   *detach.Reconciler
}

func newRace(t *testing.T, volume string) *race {
	t.Helper()
	c := hostcluster.Clusters{Host: kube.Cluster{Client: clusters.Host, Live: clusters.Host}, DPU: kube.Cluster{Client: clusters.DPU, Live: clusters.DPU}, DPUClusterName: "dpu", Namespace: kit.Namespace, TargetNamespace: kit.Namespace}
	users := &attachment.Users{Users: podvolume.Users{Host: c.Host, Drivers: []string{kubetest.Driver}}}
	r := &race{
		volume: volume, hosts: []string{volume + "-a", volume + "-b"}, hosting: &attachment.Reconciler{Clusters: c, Users: users},
		fence: &detach.Reconciler{DPU: kube.Cluster{Client: clusters.DPU, Live: clusters.DPU}, Clock: clock.RealClock{}},
	}
	v := kubetest.DPUVolume(volume, corev1.ReadWriteOnce)
	v.Namespace = kit.Namespace
	must(t, clusters.Host.Create(t.Context(), v))
	v.Status.Phase = storagev1alpha1.DPUVolumeBound
	must(t, clusters.Host.Status().Update(t.Context(), v))
	mirror := &storagev1alpha1.Volume{ObjectMeta: named(volume)}
	mirror.Labels = map[string]string{storagev1alpha1.LabelOwnerUID: string(v.UID)}
	must(t, clusters.DPU.Create(t.Context(), mirror))
	for _, h := range r.hosts {
		must(t, clusters.Host.Create(t.Context(), kubetest.DPUStorageNode(h)))
	}
	return r
}

func (r *race) user(host string) *storagev1alpha1.DPUVolumeAttachment {
	a := kubetest.DPUVolumeAttachment(r.volume, host)
	a.Namespace = kit.Namespace
	return a
}

func (r *race) request(host string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: kit.Namespace, Name: r.user(host).Name}}
}

// attach makes both attachments and reconciles them at once; then once more,
// as the watches would.
func (r *race) attach(t *testing.T) {
	t.Helper()
	for _, h := range r.hosts {
		must(t, clusters.Host.Create(t.Context(), r.user(h)))
	}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for _, h := range r.hosts {
		wg.Go(func() {
			<-start
			_, err := r.hosting.Reconcile(t.Context(), r.request(h))
			if err != nil && !apierrors.IsConflict(err) {
				t.Errorf("reconcile %s: %v", h, err)
			}
		})
	}
	close(start)
	wg.Wait()
	for _, h := range r.hosts {
		_, err := r.hosting.Reconcile(t.Context(), r.request(h))
		must(t, err)
	}
}

// judgeRound checks winner and loser.
func (r *race) judgeRound(t *testing.T, claim moorv1alpha1.WriterClaimStatus) {
	t.Helper()
	for _, h := range r.hosts {
		a := r.user(h)
		must(t, clusters.Host.Get(t.Context(), client.ObjectKeyFromObject(a), a))
		va := &storagev1alpha1.VolumeAttachment{}
		err := clusters.DPU.Get(t.Context(), client.ObjectKeyFromObject(a), va)
		won := claim.Holder == "dpu-"+h
		if won {
			must(t, err)
			if claim.Attachment != a.Name || va.Spec.Epoch != claim.Epoch {
				t.Fatalf("winner %s: epoch %d, claim %+v", h, va.Spec.Epoch, claim)
			}
			continue
		}
		if client.IgnoreNotFound(err) != nil || va.Spec.Epoch != 0 {
			t.Fatalf("loser %s: %v, epoch %d", h, err, va.Spec.Epoch)
		}
		if !strings.Contains(a.Status.Message, "has a single writer, and DPU "+claim.Holder+" holds it") {
			t.Fatalf("loser %s has the words %q", h, a.Status.Message)
		}
	}
}

// detach deletes both attachments and lets hostcluster and failover work until they
// are gone. No node driver ever showed anything.
func (r *race) detach(t *testing.T) {
	t.Helper()
	for _, h := range r.hosts {
		must(t, clusters.Host.Delete(t.Context(), r.user(h)))
		_, err := r.hosting.Reconcile(t.Context(), r.request(h)) // deletes the VolumeAttachment
		must(t, err)
		_, err = r.fence.Reconcile(t.Context(), r.request(h)) // frees the claim
		must(t, err)
		_, err = r.hosting.Reconcile(t.Context(), r.request(h)) // lets go
		must(t, err)
		if err := clusters.Host.Get(t.Context(), client.ObjectKeyFromObject(r.user(h)), r.user(h)); !apierrors.IsNotFound(err) {
			t.Fatalf("attachment to %s is still there: %v", h, err)
		}
	}
}

func (r *race) claim(t *testing.T) moorv1alpha1.WriterClaimStatus {
	t.Helper()
	claim := &moorv1alpha1.WriterClaim{}
	must(t, clusters.DPU.Get(t.Context(), client.ObjectKey{Namespace: kit.Namespace, Name: r.volume}, claim))
	if claim.Status == nil {
		t.Fatal("the claim has no status")
	}
	return *claim.Status
}

// watch records every state of the claim; the function it returns gives them
// once the claim is free under the epoch given.
func (r *race) watch(t *testing.T) func(epoch int64) []moorv1alpha1.WriterClaimStatus {
	t.Helper()
	w, err := clusters.DPU.Watch(t.Context(), &moorv1alpha1.WriterClaimList{}, client.InNamespace(kit.Namespace))
	must(t, err)
	t.Cleanup(w.Stop)
	return func(epoch int64) []moorv1alpha1.WriterClaimStatus {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		var out []moorv1alpha1.WriterClaimStatus
		for {
			select {
			case <-ctx.Done():
				t.Fatalf("the watch shows no free claim of epoch %d", epoch)
			case e := <-w.ResultChan():
				claim, ok := e.Object.(*moorv1alpha1.WriterClaim)
				if !ok || e.Type == watch.Error {
					t.Fatalf("watch: %+v", e)
				}
				if claim.Name != r.volume || claim.Status == nil {
					continue
				}
				out = append(out, *claim.Status)
				if claim.Status.Phase == moorv1alpha1.ClaimFree && claim.Status.Epoch == epoch {
					return out
				}
			}
		}
	}
}

// lawful checks a claim's whole history: a grant only from Free and with the
// next epoch, an end only of the same epoch and with its receipt.
func lawful(t *testing.T, history []moorv1alpha1.WriterClaimStatus) {
	t.Helper()
	last := moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree}
	for i, s := range history {
		switch {
		case last.Phase == moorv1alpha1.ClaimFree && s.Phase == moorv1alpha1.ClaimGranted && s.Epoch == last.Epoch+1 && s.Holder != "":
		case last.Phase == moorv1alpha1.ClaimGranted && s.Phase == moorv1alpha1.ClaimFree && s.Epoch == last.Epoch &&
			len(s.Receipts) > 0 && s.Receipts[len(s.Receipts)-1].Epoch == s.Epoch && s.Receipts[len(s.Receipts)-1].Holder == last.Holder:
		default:
			t.Fatalf("state %d: %+v after %+v", i, s, last)
		}
		last = s
	}
	if len(history) != 2*rounds {
		t.Errorf("the claim had %d states in %d rounds", len(history), rounds)
	}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: kit.Namespace, Name: name}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
