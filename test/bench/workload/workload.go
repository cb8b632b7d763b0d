package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/proof"
)

// Options say where a workload runs.
type Options struct {
	Bed     *devcluster.Cluster
	Clients kit.Clients
	// Namespace of the pods; it has to be there.
	Namespace string
	// Checked is told of each history of a volume that was judged: how many
	// breaches of the rule of one writer were new in it, and how many lost writes.
	Checked func(violations, lost int)
}

// Workload is pods that write, with all that is recorded of their volumes.
type Workload struct {
	o    Options
	spec Spec
	// volumes by the name of their claim.
	volumes map[string]*Volume
	stop    context.CancelFunc
}

// Volume is one volume with the pod that writes to it now.
type Volume struct {
	// Name is that of the DPUVolume.
	Name string
	// Pod writes now, First is its first line.
	Pod   *corev1.Pod
	First Ack
	// Past are the lines that earlier pods acknowledged.
	Past []Ack
	// Record is that of the right to write.
	Record *proof.Recorder

	vendorVolume string
	log          *Log
	// told is how many violations of each rule were counted already: each
	// check looks at all that was recorded.
	told map[proof.Rule]int
}

// Start makes the pods and returns when every one has written.
func Start(ctx context.Context, o Options, spec Spec) (*Workload, error) {
	for _, object := range spec.objects(o.Namespace) {
		if err := o.Clients.Host.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("make %T %s: %w", object, object.GetName(), err)
		}
	}
	w := &Workload{o: o, spec: spec, volumes: map[string]*Volume{}}
	watching, stop := context.WithCancel(ctx)
	w.stop = stop
	if err := w.AwaitWriters(ctx, nil); err != nil {
		w.Close()
		return nil, err
	}
	for claim, v := range w.volumes {
		if err := w.record(watching, claim, v); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// record begins to record the right to write of the volume behind a claim.
func (w *Workload) record(ctx context.Context, claim string, v *Volume) error {
	pvc := &corev1.PersistentVolumeClaim{}
	if err := w.o.Clients.Host.Get(ctx, client.ObjectKey{Namespace: w.o.Namespace, Name: claim}, pvc); err != nil {
		return fmt.Errorf("find the volume of claim %s: %w", claim, err)
	}
	v.Name = pvc.Spec.VolumeName
	var err error
	if v.vendorVolume, err = kit.VendorVolume(ctx, w.o.Clients.DPU, v.Name); err != nil {
		return err
	}
	v.Record, err = proof.Watch(ctx, w.o.Clients.DPU, kit.Namespace, v.Name)
	return err
}

// Close ends what records the workload. The pods stay.
func (w *Workload) Close() {
	w.stop()
	for _, v := range w.volumes {
		if v.log != nil {
			v.log.Close()
		}
	}
}

// Volumes are all of them, by the name of their claim.
func (w *Workload) Volumes() map[string]*Volume { return w.volumes }

// pods are the pods that run, by claim, without those whose UIDs are in not.
func (w *Workload) pods(ctx context.Context, not map[types.UID]bool) (map[string]*corev1.Pod, error) {
	var list corev1.PodList
	if err := w.o.Clients.Host.List(ctx, &list, client.InNamespace(w.o.Namespace), client.MatchingLabels{"app": name}); err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", name, err)
	}
	out := map[string]*corev1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		if not[p.UID] || !p.DeletionTimestamp.IsZero() || !kit.Ready(p) {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				out[v.PersistentVolumeClaim.ClaimName] = p
			}
		}
	}
	return out, nil
}

// AwaitWriters waits until every pod runs that is not one of not, and has
// written, and takes them for the writers.
func (w *Workload) AwaitWriters(ctx context.Context, not map[types.UID]bool) error {
	var pods map[string]*corev1.Pod
	err := kit.Until(ctx, fmt.Sprintf("%d pods of %s run", w.spec.Pods, name), func(ctx context.Context) (bool, error) {
		var err error
		pods, err = w.pods(ctx, not)
		return len(pods) == w.spec.Pods, err
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, w.story(ctx))
	}
	for claim, p := range pods {
		log, first, err := FirstAck(ctx, p)
		if err != nil {
			return err
		}
		v := w.volumes[claim]
		if v == nil {
			v = &Volume{told: map[proof.Rule]int{}}
			w.volumes[claim] = v
		}
		if err := v.turn(p, log, first); err != nil {
			return err
		}
	}
	return nil
}

// turn makes p the writer.
func (v *Volume) turn(p *corev1.Pod, log *Log, first Ack) error {
	if v.log != nil {
		acks, err := v.log.Acks()
		if err != nil {
			return err
		}
		v.Past = append(v.Past, acks...)
		v.log.Close()
	}
	v.Pod, v.log, v.First = p, log, first
	return nil
}

// Writers are the UIDs of the pods that write now.
func (w *Workload) Writers() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, v := range w.volumes {
		out[v.Pod.UID] = true
	}
	return out
}

// Host is where all pods are; an error if they are not on one.
func (w *Workload) Host() (string, error) {
	hosts := map[string]bool{}
	for _, v := range w.volumes {
		hosts[v.Pod.Spec.NodeName] = true
	}
	names := slices.Sorted(maps.Keys(hosts))
	if len(names) != 1 {
		return "", fmt.Errorf("find the one host of the pods of %s: they are on %v", name, names)
	}
	return names[0], nil
}

// Resumed is when the last of the first lines was written: all pods are back.
func (w *Workload) Resumed() time.Time {
	var out time.Time
	for _, v := range w.volumes {
		if v.First.At.After(out) {
			out = v.First.At
		}
	}
	return out
}

// story tells of every pod that does not run.
func (w *Workload) story(ctx context.Context) string {
	var list corev1.PodList
	if err := w.o.Clients.Host.List(context.WithoutCancel(ctx), &list, client.InNamespace(w.o.Namespace)); err != nil {
		return err.Error()
	}
	var out []string
	for i := range list.Items {
		if p := &list.Items[i]; !kit.Ready(p) {
			out = append(out, kit.Story(ctx, w.o.Clients.Host, p))
		}
	}
	return strings.Join(out, "\n")
}
