package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster/procs"
	"github.com/moor-storage/moor/test/kit"
)

const (
	// looks and lookApart are how often the memory is read: it moves with the
	// garbage collector.
	looks     = 10
	lookApart = time.Second
)

// attachedPerHost is how many volumes each host has attached for rss.attached.
const attachedPerHost = 50

// many measures what depends on how many volumes there are: while many are
// there, at first none of them attached, then with further ones that are.
func (b *bench) many(ctx context.Context) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.memory(ctx, "rss."); err != nil {
		return err
	}
	if err := b.listing(ctx); err != nil {
		return err
	}
	if err := b.attachAll(ctx); err != nil {
		return err
	}
	return b.memory(ctx, "rss.attached.")
}

// attachAll attaches new volumes to every host, and leaves them attached.
func (b *bench) attachAll(ctx context.Context) error {
	if err := b.wantFunctions(attachedPerHost); err != nil {
		return err
	}
	volumes, err := b.create(ctx, attachedPerHost*len(b.bed.Nodes()), plain())
	if err != nil {
		return err
	}
	_, _, err = b.attachAtOnce(ctx, volumes, b.turn)
	return err
}

// memory measures the resident memory of every process of Moor. Processes that
// run on every host or DPU share one result, whose name begins with prefix.
func (b *bench) memory(ctx context.Context, prefix string) error {
	samples, err := b.lookAtMemory(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		b.series(prefix+name, results.Megabytes, results.Worst).add(samples[name]...)
	}
	return nil
}

// lookAtMemory reads the memory of every process of Moor several times, by the names that processes share.
func (b *bench) lookAtMemory(ctx context.Context) (map[string][]float64, error) {
	samples := map[string][]float64{}
	for range looks {
		if err := b.readMemory(samples); err != nil {
			return nil, err
		}
		if err := pause(ctx, lookApart); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// listing measures how long it takes to list all volumes.
func (b *bench) listing(ctx context.Context) error {
	took := b.series(fmt.Sprintf("list.volumes%d", b.options.volumes), results.Millis, results.Median)
	for i := range warmups + b.options.times(50) {
		begin := time.Now()
		listed, err := b.listAll(ctx)
		if err != nil {
			return err
		}
		if listed < b.options.volumes {
			return fmt.Errorf("list the volumes: there are %d of them, and %d are listed", b.options.volumes, listed)
		}
		if i >= warmups {
			took.add(millis(time.Since(begin)))
		}
	}
	return nil
}

// listAll lists, page after page, and counts the volumes.
func (b *bench) listAll(ctx context.Context) (n int, err error) {
	for token := ""; ; {
		page, err := b.driver.ListVolumes(ctx, &csispec.ListVolumesRequest{StartingToken: token})
		if err != nil {
			return 0, fmt.Errorf("list the volumes: %w", err)
		}
		n += len(page.GetEntries())
		if token = page.GetNextToken(); token == "" {
			return n, nil
		}
	}
}

// fill makes the volumes, directly as DPUVolumes, and waits until all are
// bound.
func (b *bench) fill(ctx context.Context) error {
	err := each(b.options.volumes, func(i int) error {
		o := &storagev1alpha1.DPUVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%sfill-%d", prefix, i), Namespace: kit.Namespace},
			Spec: storagev1alpha1.DPUVolumeSpec{
				DPUStoragePolicyName: policy,
				AccessModes:          []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:            corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
			},
		}
		if err := b.clients.Host.Create(ctx, o); err != nil {
			return fmt.Errorf("make DPUVolume %s: %w", o.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return kit.Until(ctx, fmt.Sprintf("%d volumes are bound", b.options.volumes), func(ctx context.Context) (bool, error) {
		bound, err := b.list(ctx, &storagev1alpha1.DPUVolumeList{}, func(o client.Object) bool {
			v, ok := o.(*storagev1alpha1.DPUVolume)
			return ok && v.Status.Phase == storagev1alpha1.DPUVolumeBound
		})
		return len(bound) >= b.options.volumes, err
	})
}

// readMemory adds one sample of every process that the bed runs from Moor's
// programs.
func (b *bench) readMemory(samples map[string][]float64) error {
	processes, err := b.bed.Processes()
	if err != nil {
		return err
	}
	for _, p := range processes {
		if filepath.Dir(p.Argv[0]) != b.bed.BinDir() || !p.Identity.Alive() {
			continue
		}
		megabytes, err := procs.Resident(p.Identity.PID)
		if err != nil {
			return fmt.Errorf("process %s: %w", p.Name, err)
		}
		name := group(p.Name)
		samples[name] = append(samples[name], megabytes)
	}
	return nil
}

var numbered = regexp.MustCompile(`-(host|dpu)-\d+$`)

// group is the name that the processes of a kind share: snap-csi-plugin-host-2
// is one of snap-csi-plugin-host.
func group(process string) string { return numbered.ReplaceAllString(process, "-$1") }
