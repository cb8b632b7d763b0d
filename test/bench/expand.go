package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/bench/workload"
	"github.com/moor-storage/moor/test/kit"
)

const (
	// xfsClass is a StorageClass of the benchmarks' own. xfs grows in use for
	// root; ext4 for those alone who have CAP_SYS_RESOURCE.
	xfsClass = "bench-xfs"
	// smallest is how large the volume is at first, grown by how much it grows
	// each time, in bytes; xfs is 300 MiB at least.
	smallest, grown = 320 << 20, 32 << 20
)

// printSize prints how many blocks the file system has, whenever it has more.
const printSize = `trap 'exit 0' TERM
last=
while :; do
  now=$(stat -f -c %b /data)
  [ "$now" = "$last" ] || echo "$now"
  last=$now
  usleep 20000
done`

// expand measures how long it takes until a pod that runs has more room, from
// the change of its claim on. The starts are spread over the period in which the
// kubelets of the fast profile look by themselves.
func (b *bench) expand(ctx context.Context) error {
	pvc, log, err := b.growing(ctx)
	if err != nil {
		return err
	}
	defer log.Close()
	begin := time.Now()
	took := b.series(b.inMode("expand.pod"), results.Millis, results.Median)
	for i := range 1 + b.options.times(5) {
		if err := pause(ctx, untilPhase(time.Since(begin), i)); err != nil {
			return err
		}
		d, err := b.grow(ctx, pvc, log, int64(smallest+(i+1)*grown))
		if err != nil {
			return err
		}
		if i > 0 {
			took.add(millis(d))
		}
	}
	return nil
}

// growing starts a pod that prints how large its volume is.
func (b *bench) growing(ctx context.Context) (*corev1.PersistentVolumeClaim, *workload.Log, error) {
	if err := b.makeNamespace(ctx); err != nil {
		return nil, nil, err
	}
	class := &storagev1.StorageClass{
		Provisioner: driverName, AllowVolumeExpansion: ptr.To(true),
		Parameters: map[string]string{"policy": policy, "csi.storage.k8s.io/fstype": "xfs"},
	}
	class.Name = xfsClass
	pvc, user := claim("growing"), pod("growing")
	pvc.Spec.StorageClassName = ptr.To(xfsClass)
	pvc.Spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(smallest, resource.BinarySI)
	user.Spec.Containers[0].Command = []string{"sh", "-c", printSize}
	for _, o := range []client.Object{class, pvc, user} {
		if err := b.clients.Host.Create(ctx, o); err != nil {
			return nil, nil, fmt.Errorf("make %s: %w", o.GetName(), err)
		}
	}
	running, err := kit.AwaitRunning(ctx, b.clients.Host, client.ObjectKeyFromObject(user), "", patience)
	if err != nil {
		return nil, nil, err
	}
	log, _, err := workload.FirstAck(ctx, running)
	return pvc, log, err
}

// grow asks for more and returns how long it took until the pod saw it. It
// waits until the claim says so too, so that the next one begins in peace.
func (b *bench) grow(ctx context.Context, pvc *corev1.PersistentVolumeClaim, log *workload.Log, bytes int64) (time.Duration, error) {
	before, err := blocks(log)
	if err != nil {
		return 0, err
	}
	want := *resource.NewQuantity(bytes, resource.BinarySI)
	old := pvc.DeepCopy()
	pvc.Spec.Resources.Requests[corev1.ResourceStorage] = want
	begin := time.Now()
	if err := b.clients.Host.Patch(ctx, pvc, client.MergeFrom(old)); err != nil {
		return 0, fmt.Errorf("let claim %s grow to %s: %w", pvc.Name, want.String(), err)
	}
	var seen size
	err = kit.Until(ctx, fmt.Sprintf("the pod and the claim %s have %s", pvc.Name, want.String()), func(ctx context.Context) (bool, error) {
		var err error
		if seen, err = blocks(log); err != nil || seen.blocks <= before.blocks {
			return false, err
		}
		err = b.clients.Host.Get(ctx, client.ObjectKeyFromObject(pvc), pvc)
		have := pvc.Status.Capacity[corev1.ResourceStorage]
		return have.Cmp(want) >= 0, err
	})
	return seen.at.Sub(begin), err
}

// size is how many blocks a file system has, and when a pod said so.
type size struct {
	at     time.Time
	blocks int64
}

// blocks is the last size that the pod printed.
func blocks(log *workload.Log) (size, error) {
	acks, err := log.Acks()
	if err != nil || len(acks) == 0 {
		return size{}, err
	}
	last := acks[len(acks)-1]
	n, err := strconv.ParseInt(last.Line, 10, 64)
	if err != nil {
		return size{}, fmt.Errorf("the pod said %q, which is no size: %w", last.Line, err)
	}
	return size{at: last.At, blocks: n}, nil
}
