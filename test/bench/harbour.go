package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/proof"
)

// harbour is where a mooring's pods write, with all that is recorded of it.
type harbour struct {
	bench   *bench
	mooring mooring
	// berths by the name of their claim.
	berths map[string]*berth
	stop   context.CancelFunc
}

// berth is one volume with the pod that writes to it now.
type berth struct {
	volume, vendorVolume string
	pod                  *corev1.Pod
	log                  *podLog
	first                ack
	// past are the lines that earlier pods acknowledged.
	past   []ack
	record *proof.Recorder
	// told is how many violations of each rule were counted already: each
	// check looks at all that was recorded.
	told map[proof.Rule]int
}

func (h *harbour) leave() {
	h.stop()
	for _, b := range h.berths {
		if b.log != nil {
			b.log.close()
		}
	}
}

// pods are the pods that run, by claim, without those whose UIDs are in not.
func (h *harbour) pods(ctx context.Context, not map[types.UID]bool) (map[string]*corev1.Pod, error) {
	var list corev1.PodList
	if err := h.bench.clients.Host.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app": moored}); err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", moored, err)
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

// settle waits until every pod runs that is not one of not, and has written,
// and takes them for the writers.
func (h *harbour) settle(ctx context.Context, not map[types.UID]bool) error {
	var pods map[string]*corev1.Pod
	err := until(ctx, fmt.Sprintf("%d pods of %s run", h.mooring.pods, moored), func(ctx context.Context) (bool, error) {
		var err error
		pods, err = h.pods(ctx, not)
		return len(pods) == h.mooring.pods, err
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, h.story(ctx))
	}
	for name, p := range pods {
		log, first, err := firstAck(ctx, p)
		if err != nil {
			return err
		}
		b := h.berths[name]
		if b == nil {
			b = &berth{told: map[proof.Rule]int{}}
			h.berths[name] = b
		}
		if err := b.turn(p, log, first); err != nil {
			return err
		}
	}
	return nil
}

// turn makes p the writer.
func (b *berth) turn(p *corev1.Pod, log *podLog, first ack) error {
	if b.log != nil {
		acks, err := b.log.acks()
		if err != nil {
			return err
		}
		b.past = append(b.past, acks...)
		b.log.close()
	}
	b.pod, b.log, b.first = p, log, first
	return nil
}

// writers are the UIDs of the pods that write now.
func (h *harbour) writers() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, b := range h.berths {
		out[b.pod.UID] = true
	}
	return out
}

// host is where all pods are; an error if they are not on one.
func (h *harbour) host() (string, error) {
	hosts := map[string]bool{}
	for _, b := range h.berths {
		hosts[b.pod.Spec.NodeName] = true
	}
	names := slices.Sorted(maps.Keys(hosts))
	if len(names) != 1 {
		return "", fmt.Errorf("find the one host of the pods of %s: they are on %v", moored, names)
	}
	return names[0], nil
}

// last is when the last of the first lines was written: all pods are back.
func (h *harbour) last() time.Time {
	var out time.Time
	for _, b := range h.berths {
		if b.first.at.After(out) {
			out = b.first.at
		}
	}
	return out
}

// story tells of every pod that does not run.
func (h *harbour) story(ctx context.Context) string {
	var list corev1.PodList
	if err := h.bench.clients.Host.List(context.WithoutCancel(ctx), &list, client.InNamespace(namespace)); err != nil {
		return err.Error()
	}
	var out []string
	for i := range list.Items {
		if p := &list.Items[i]; !kit.Ready(p) {
			out = append(out, kit.Story(ctx, h.bench.clients.Host, p))
		}
	}
	return strings.Join(out, "\n")
}

// witness begins to record the right to write of a berth's volume.
func (h *harbour) witness(ctx context.Context, b *berth) error {
	pvc := &corev1.PersistentVolumeClaim{}
	for name, other := range h.berths {
		if other == b {
			pvc.Name = name
		}
	}
	if err := h.bench.clients.Host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pvc.Name}, pvc); err != nil {
		return fmt.Errorf("find the volume of claim %s: %w", pvc.Name, err)
	}
	b.volume = pvc.Spec.VolumeName
	var err error
	if b.vendorVolume, err = kit.VendorVolume(ctx, h.bench.clients.DPU, b.volume); err != nil {
		return err
	}
	b.record, err = proof.Watch(ctx, h.bench.clients.DPU, kit.Namespace, b.volume)
	return err
}

// prove holds everything that was recorded of every volume against the rules
// of one writer and of nothing lost, and counts what is new.
func (h *harbour) prove(ctx context.Context) error {
	var failed []error
	for _, b := range h.berths {
		violations, err := h.proveOne(ctx, b)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		broken, lost := 0, 0
		now := map[proof.Rule]int{}
		for _, v := range violations {
			if now[v.Rule]++; now[v.Rule] <= b.told[v.Rule] {
				continue
			}
			b.told[v.Rule]++
			if losesWrites(v.Rule) {
				lost++
			} else {
				broken++
			}
			failed = append(failed, fmt.Errorf("this must never happen: %.600s", v))
		}
		h.bench.checked(broken, lost)
	}
	return errors.Join(failed...)
}

func (h *harbour) proveOne(ctx context.Context, b *berth) ([]proof.Violation, error) {
	// What was acknowledged is taken first, and must be found afterwards. The
	// log of the medium is read before the record: it must not know more.
	acks, err := b.log.acks()
	if err != nil {
		return nil, err
	}
	text, err := kit.Exec(ctx, h.bench.bed, client.ObjectKeyFromObject(b.pod), "cat "+journalFile)
	if err != nil {
		return nil, err
	}
	writes, below, err := kit.WriteLogs(ctx, h.bench.bed, b.vendorVolume)
	if err != nil {
		return nil, fmt.Errorf("read what the medium accepted of volume %s: %w", b.volume, err)
	}
	states, err := b.record.States(ctx)
	if err != nil {
		return nil, err
	}
	journal := proof.Journal{Name: journalFile, Read: strings.Fields(text)}
	for _, a := range append(slices.Clone(b.past), acks...) {
		journal.Acknowledged = append(journal.Acknowledged, a.line)
	}
	if len(writes) == 0 || len(journal.Acknowledged) == 0 {
		return nil, fmt.Errorf("prove volume %s: nothing was written", b.volume)
	}
	return proof.Check(proof.History{Volume: b.volume, States: states, Writes: writes, Below: below, Journals: []proof.Journal{journal}}), nil
}
