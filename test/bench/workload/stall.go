package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moor-storage/moor/test/kit"
)

// Stalled waits until every pod has written again after now, and returns the longest time since
// then that one of them acknowledged nothing. Another pod, a container that was started again, and
// a line that failed are errors: the pods are to have seen nothing but a pause.
func (w *Workload) Stalled(ctx context.Context, since time.Time) (longest time.Duration, err error) {
	until := time.Now()
	for _, v := range w.volumes {
		var acks []Ack
		err := kit.Until(ctx, "pod "+v.Pod.Name+" writes on", func(context.Context) (bool, error) {
			var err error
			acks, err = v.log.Acks()
			return len(acks) > 0 && acks[len(acks)-1].At.After(until), err
		})
		if err != nil {
			return 0, err
		}
		d, err := stall(acks, since)
		if err != nil {
			return 0, fmt.Errorf("pod %s: %w", v.Pod.Name, err)
		}
		longest = max(longest, d)
	}
	return longest, w.same(ctx)
}

// same is an error unless the writers are the pods that run, and their containers the first.
func (w *Workload) same(ctx context.Context) error {
	now, err := w.pods(ctx, nil)
	if err != nil {
		return err
	}
	for claim, v := range w.volumes {
		p := now[claim]
		if p == nil || p.UID != v.Pod.UID {
			return fmt.Errorf("pod %s of before does not run any more", v.Pod.Name)
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				return fmt.Errorf("container %s of pod %s was started again", c.Name, p.Name)
			}
		}
	}
	return nil
}

// stall is the longest time between two lines of which the later is younger than since. The lines
// of a pod are numbered: one that is missing has failed.
func stall(acks []Ack, since time.Time) (longest time.Duration, err error) {
	last := -1
	for i, a := range acks {
		n, err := number(a.Line)
		if err != nil {
			return 0, err
		}
		if i > 0 && a.At.After(since) {
			longest = max(longest, a.At.Sub(acks[i-1].At))
		}
		if n != last+1 {
			return 0, fmt.Errorf("the line before %q has failed", a.Line)
		}
		last = n
	}
	if len(acks) < 2 || !acks[len(acks)-1].At.After(since) {
		return 0, errors.New("nothing was written since")
	}
	return longest, nil
}

// number is that of a line, which begins with the name of its pod.
func number(line string) (int, error) {
	n, err := strconv.Atoi(line[strings.LastIndex(line, "-")+1:])
	if err != nil {
		return 0, fmt.Errorf("%q is no line of a pod: %w", line, err)
	}
	return n, nil
}
