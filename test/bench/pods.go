package main

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/kit"
)

// makeNamespace makes the namespace of pods and claims; clear removes it.
func (b *bench) makeNamespace(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := b.clients.Host.Create(ctx, ns); err != nil {
		return fmt.Errorf("make namespace %s: %w", namespace, err)
	}
	// The account without which no pod is admitted.
	return kit.Until(ctx, "namespace "+namespace+" has its default ServiceAccount", func(ctx context.Context) (bool, error) {
		err := b.clients.Host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

func claim(name string) *corev1.PersistentVolumeClaim { return claimOf(name, storageClass) }

func claimOf(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(class),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Containers: []corev1.Container{{
				Name: "main", Image: kit.Image, Command: []string{"sleep", "1000000"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}}},
		},
	}
}

// provision measures from the creation of a claim until it is Bound.
func (b *bench) provision(ctx context.Context) error {
	if err := b.makeNamespace(ctx); err != nil {
		return err
	}
	took := b.series("provision", results.Millis, results.Median)
	for i := range warmups + b.options.times(30) {
		name := fmt.Sprintf("claim-%d", i)
		d, err := b.timeUntil(ctx, kit.Hop{
			Name: name + " is bound", Where: b.clients.Host, Kind: &corev1.PersistentVolumeClaimList{},
			Seen: func(o client.Object) bool {
				c, ok := o.(*corev1.PersistentVolumeClaim)
				return ok && c.Name == name && c.Namespace == namespace && c.Status.Phase == corev1.ClaimBound
			},
		}, claim(name))
		if err != nil {
			return err
		}
		if i >= warmups {
			took.add(millis(d))
		}
	}
	return nil
}

// kubeletPeriod is how often a kubelet of the stock profile writes the status
// of its node (nodeStatusUpdateFrequency); a pod may wait for one such write.
const kubeletPeriod = 10 * time.Second

// pods measures from the creation of a pod and its claim until it runs and is
// ready. The starts are spread over the kubelet's period: runs that follow
// each other at once would all meet it in the same phase.
func (b *bench) pods(ctx context.Context) error {
	if err := b.wantStock(); err != nil {
		return err
	}
	if err := b.makeNamespace(ctx); err != nil {
		return err
	}
	return b.spreadStarts(ctx, b.series(b.inMode("pod.new_volume"), results.Millis, results.Median), storageClass)
}

// spreadStarts adds what the starts of pods take whose claims are of a class, spread over the kubelet's period.
func (b *bench) spreadStarts(ctx context.Context, took *series, class string) error {
	begin := time.Now()
	for i := range 1 + b.options.times(20) {
		if err := pause(ctx, untilPhase(time.Since(begin), i)); err != nil {
			return err
		}
		d, err := b.startPod(ctx, fmt.Sprintf("pod-%d", i), class)
		if err != nil {
			return err
		}
		if i > 0 {
			took.add(millis(d))
		}
	}
	return nil
}

// untilPhase is how long to wait so that start i falls on its own place in the
// kubelet's period. Multiples of the golden ratio fill the period evenly,
// however many there are.
func untilPhase(elapsed time.Duration, i int) time.Duration {
	_, part := math.Modf(float64(i) * math.Phi)
	wait := time.Duration(part*float64(kubeletPeriod)) - elapsed%kubeletPeriod
	if wait < 0 {
		wait += kubeletPeriod
	}
	return wait
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// startPod times a pod and removes it with its volume.
func (b *bench) startPod(ctx context.Context, name, class string) (time.Duration, error) {
	d, err := b.timeUntil(ctx, kit.Hop{
		Name: name + " runs", Where: b.clients.Host, Kind: &corev1.PodList{},
		Seen: func(o client.Object) bool {
			p, ok := o.(*corev1.Pod)
			return ok && p.Name == name && p.Namespace == namespace && kit.Ready(p)
		},
	}, claimOf(name, class), pod(name))
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, kit.Story(ctx, b.clients.Host, pod(name)))
	}
	for _, o := range []client.Object{pod(name), claim(name)} {
		if err := b.clients.Host.Delete(ctx, o); err != nil {
			return 0, fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return d, b.volumesGone(ctx, name+" and its volume are gone")
}

// volumesGone waits until no volume of a claim is left.
func (b *bench) volumesGone(ctx context.Context, what string) error {
	return kit.Until(ctx, what, func(ctx context.Context) (bool, error) {
		var volumes corev1.PersistentVolumeList
		err := b.clients.Host.List(ctx, &volumes)
		for i := range volumes.Items {
			if ref := volumes.Items[i].Spec.ClaimRef; ref != nil && ref.Namespace == namespace {
				return false, err
			}
		}
		return true, err
	})
}

// timeUntil makes the objects and returns how long it took from then until the
// hop was seen.
func (b *bench) timeUntil(ctx context.Context, hop kit.Hop, objects ...client.Object) (time.Duration, error) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	timeline, err := kit.Watch(watching, hop)
	if err != nil {
		return 0, err
	}
	for _, o := range objects {
		if err := b.clients.Host.Create(ctx, o); err != nil {
			return 0, fmt.Errorf("make %s: %w", o.GetName(), err)
		}
	}
	if err := timeline.Wait(ctx, patience); err != nil {
		return 0, err
	}
	return timeline.Marks()[0].At, nil
}
