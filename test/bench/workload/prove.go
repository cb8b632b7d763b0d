package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/proof"
)

// Prove holds everything that was recorded of every volume against the rules of
// one writer and of nothing lost, and tells Options.Checked what is new.
func (w *Workload) Prove(ctx context.Context) error {
	var failed []error
	for _, v := range w.volumes {
		violations, err := w.judge(ctx, v)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		news := v.news(violations)
		broken, lost := count(news)
		w.o.Checked(broken, lost)
		for _, violation := range news {
			failed = append(failed, fmt.Errorf("this must never happen: %.600s", violation))
		}
	}
	return errors.Join(failed...)
}

// news are the violations that were not told before.
func (v *Volume) news(violations []proof.Violation) []proof.Violation {
	now := map[proof.Rule]int{}
	var out []proof.Violation
	for _, violation := range violations {
		if now[violation.Rule]++; now[violation.Rule] > v.told[violation.Rule] {
			v.told[violation.Rule]++
			out = append(out, violation)
		}
	}
	return out
}

// count sorts violations into breaches of the rule of one writer and lost writes.
func count(violations []proof.Violation) (broken, lost int) {
	for _, v := range violations {
		if v.Rule == proof.RuleAcknowledged || v.Rule == proof.RuleOrder {
			lost++
		} else {
			broken++
		}
	}
	return broken, lost
}

func (w *Workload) judge(ctx context.Context, v *Volume) ([]proof.Violation, error) {
	// What was acknowledged is taken first, and must be found afterwards. The
	// logs are read before the record: they must not know more.
	acks, err := v.log.Acks()
	if err != nil {
		return nil, err
	}
	text, err := kit.Exec(ctx, w.o.Bed, client.ObjectKeyFromObject(v.Pod), "cat "+journalFile)
	if err != nil {
		return nil, err
	}
	h, err := kit.Recorded(ctx, w.o.Bed, v.vendorVolume)
	if err != nil {
		return nil, fmt.Errorf("read what the medium accepted of volume %s: %w", v.Name, err)
	}
	if h.States, err = v.Record.States(ctx); err != nil {
		return nil, err
	}
	journal := proof.Journal{Name: journalFile, Read: strings.Fields(text)}
	for _, a := range append(slices.Clone(v.Past), acks...) {
		journal.Acknowledged = append(journal.Acknowledged, a.Line)
	}
	if len(h.Writes) == 0 || len(journal.Acknowledged) == 0 {
		return nil, fmt.Errorf("prove volume %s: nothing was written", v.Name)
	}
	h.Volume, h.Journals = v.Name, []proof.Journal{journal}
	return proof.Check(h), nil
}
