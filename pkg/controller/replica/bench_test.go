package replica

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// shelf is a cache that costs what an informer's does: it finds by index, and copies
// unless it is asked not to.
type shelf struct {
	client.Client
	all     map[string]map[client.ObjectKey]client.Object
	indexed map[string]map[string][]client.Object
}

func newShelf(objects []client.Object) *shelf {
	s := &shelf{all: map[string]map[client.ObjectKey]client.Object{}, indexed: map[string]map[string][]client.Object{}}
	for _, o := range objects {
		kind := reflect.TypeOf(o).Elem().Name()
		if s.all[kind] == nil {
			s.all[kind] = map[client.ObjectKey]client.Object{}
		}
		s.all[kind][client.ObjectKeyFromObject(o)] = o
		for _, by := range index.Replicas() {
			if reflect.TypeOf(by.Object) != reflect.TypeOf(o) {
				continue
			}
			if s.indexed[by.Field] == nil {
				s.indexed[by.Field] = map[string][]client.Object{}
			}
			for _, value := range by.Extract(o) {
				s.indexed[by.Field][value] = append(s.indexed[by.Field][value], o)
			}
		}
	}
	return s
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	kind := reflect.TypeOf(into).Elem().Name()
	o, ok := s.all[kind][key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
	if is := (&client.GetOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy; is == nil || !*is {
		o = o.DeepCopyObject().(client.Object)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
	return nil
}

func (s *shelf) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	kind := reflect.TypeOf(into).Elem().Name()
	var found []client.Object
	if o.FieldSelector != nil {
		by := o.FieldSelector.Requirements()[0]
		found = s.indexed[by.Field][by.Value]
	} else {
		found = slices.Collect(maps.Values(s.all[strings.TrimSuffix(kind, "List")]))
	}
	out := make([]runtime.Object, 0, len(found))
	for _, one := range found {
		if o.Namespace != "" && one.GetNamespace() != o.Namespace {
			continue
		}
		if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
			one = one.DeepCopyObject().(client.Object)
		}
		out = append(out, one)
	}
	return meta.SetList(into, out)
}

func (s *shelf) Status() client.SubResourceWriter { return statusOf{shelf: s} }

type statusOf struct {
	client.SubResourceWriter
	shelf *shelf
}

func (w statusOf) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	w.shelf.all[reflect.TypeOf(o).Elem().Name()][client.ObjectKeyFromObject(o)] = o.DeepCopyObject().(client.Object)
	return nil
}

// fleet is n nodes with ten attachments each and no room for a replica, and on each a pod
// that is averse to those of its kind in its namespace, of which there are n/10.
func fleet(n int) []client.Object {
	var out []client.Object
	for i := range n {
		node := fmt.Sprintf("n%d", i)
		core := kubetest.Node(node, map[string]string{corev1.LabelHostname: node, corev1.LabelTopologyZone: fmt.Sprint(i % 10)})
		core.Annotations = map[string]string{"managed": string(make([]byte, 2000))}
		d := kubetest.DPUStorageNode(node)
		d.Status.DPU = &moorv1alpha1.DPUState{SNAPReady: true, Functions: []moorv1alpha1.FunctionCount{{Type: "vf", Total: 16, Free: 0}}}
		out = append(out, core, d)
		for j := range 10 {
			volume := fmt.Sprintf("v%d-%d", i, j)
			a := kubetest.DPUVolumeAttachment(volume, node)
			yes := true
			a.Status = storagev1alpha1.DPUVolumeAttachmentStatus{DPUAttached: &yes, DPU: &storagev1alpha1.AttachedDPU{PCIAddress: "3b:00.2"}}
			v := kubetest.DPUVolume(volume, corev1.ReadWriteOnce)
			v.Spec.Replication, v.Status.Phase = &storagev1alpha1.Replication{MaxShares: 2, MaxMountReplicaCount: 1}, storagev1alpha1.DPUVolumeBound
			out = append(out, a, v)
		}
		pod := kubetest.Pod("p"+node, node, fmt.Sprintf("v%d-0", i))
		pod.Namespace, pod.UID, pod.Status.Phase = fmt.Sprintf("ns%d", i%10), types.UID(node), corev1.PodRunning
		pod.Labels = map[string]string{"app": "db"}
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		}}}}
		pv := kubetest.PV(fmt.Sprintf("pv-v%d-0", i), fmt.Sprintf("v%d-0", i), fmt.Sprintf("v%d-0", i))
		pv.Spec.ClaimRef.Namespace = pod.Namespace
		out = append(out, pod, pv)
	}
	return out
}

func atSize(b *testing.B, do func(b *testing.B, r *Reconciler)) {
	for _, n := range []int{200, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newShelf(fleet(n))
			do(b, &Reconciler{Options: Options{
				Host: kube.Cluster{Client: s, Live: s}, Clock: testingclock.NewFakePassiveClock(time.Now()),
				Namespace: kubetest.HostNamespace, Driver: kubetest.Driver, Reserve: 1, TopologyKey: corev1.LabelTopologyZone,
			}})
		})
	}
}

// BenchmarkMissing is a pass over a volume that misses a replica.
func BenchmarkMissing(b *testing.B) {
	atSize(b, func(b *testing.B, r *Reconciler) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: kubetest.HostNamespace, Name: "v1-0"}}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkPod is what one pod with demands, of those that there are at the start, costs
// until it is known which volumes it concerns.
func BenchmarkPod(b *testing.B) {
	atSize(b, func(b *testing.B, r *Reconciler) {
		pod := &corev1.Pod{}
		if err := r.Host.Client.Get(b.Context(), client.ObjectKey{Namespace: "ns1", Name: "pn1"}, pod); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			r.ofPod(b.Context(), pod)
		}
	})
}
