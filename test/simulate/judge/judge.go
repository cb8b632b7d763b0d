// Package judge says whether what happened was safe: it follows each WriterClaim as it
// was written, what the DPUs show, and which writes the medium has accepted. It reads no
// status and believes no program; of receipts it knows only that a claim was freed.
package judge

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/hardware"
)

// The rules that can be broken.
const (
	// OlderWrite: a write was accepted after one of a later grant.
	OlderWrite = "older write"
	// LateWrite: a write was accepted after the claim was freed or granted anew.
	LateWrite = "late write"
	// NoRight: a write was accepted of a DPU that was shown the volume before it was ever
	// granted.
	NoRight = "no right"
	// TwoShow: two DPUs show the volume to hosts that run, and the storage takes both.
	TwoShow = "two show"
	// Transition: a claim was changed in a way that the model does not have.
	Transition = "transition"
	// Stuck: all is well, and an attachment is not ready and does not say for whom it waits.
	Stuck = "stuck"
	// Silent: an attachment has waited for long, and does not say for whom.
	Silent = "silent"
)

// Violation is a broken rule.
type Violation struct {
	// Rule is one of those above.
	Rule string
	// Message says what happened.
	Message string
}

// String is rule and message.
func (v Violation) String() string { return v.Rule + ": " + v.Message }

// Judge follows all volumes. It is what hardware tells.
type Judge struct {
	// Writes asks whether what the DPU shows of a volume could be written: its host runs,
	// and the storage takes it.
	Writes func(dpu, volume string) bool
	// Accept counts the writes that were accepted.
	Accept int

	volumes   map[string]*volume
	found     []Violation
	ignored   []string
	restoring bool
}

// volume is what is known of one. Its tenures are numbered from 1, in the order of the
// grants: that number is the epoch of a write here, since a claim that was lost may count
// from 1 again.
type volume struct {
	tenures []tenure
	highest int64
	showing map[string]bool
	// restored is a grant that the claim tells of since it was restored: none of now.
	restored tenure
}

// tenure is the time of one grant.
type tenure struct {
	dpu   string
	epoch int64
	over  bool
	// unknown: the claim was restored, and does not tell of it. It lasts until it is on
	// record as that of one who may write and no more, or until another begins.
	unknown, listed bool
}

// New is a judge of volumes whose claims are new.
func New() *Judge { return &Judge{volumes: map[string]*volume{}} }

// Violations are those that were found.
func (j *Judge) Violations() []Violation { return j.found }

// Ignore lets rules be broken, to find out whether others are noticed.
func (j *Judge) Ignore(rules ...string) { j.ignored = rules }

// Find adds one that another has found.
func (j *Judge) Find(rule, format string, args ...any) {
	if slices.Contains(j.ignored, rule) {
		return
	}
	j.found = append(j.found, Violation{rule, fmt.Sprintf(format, args...)})
}

func (j *Judge) of(name string) *volume {
	v := j.volumes[name]
	if v == nil {
		v = &volume{showing: map[string]bool{}}
		j.volumes[name] = v
	}
	return v
}

// Changed takes notice of a change in the DPU cluster. That a claim is gone ends nothing.
func (j *Judge) Changed(e cluster.Event) {
	claim, ok := e.Object.(*moorv1alpha1.WriterClaim)
	if j.restoring && e.Key.Kind == "WriterClaim" {
		j.of(e.Key.Name).restore(claim)
		return
	}
	before, _ := e.Before.(*moorv1alpha1.WriterClaim)
	if !ok || claim.Status == nil || unchanged(before, claim) {
		return
	}
	j.trace(e.Key.Name, before, claim)
	j.of(e.Key.Name).follow(claim.Status)
}

// follow notes which tenures are over by what the claim says now, and whether one begins.
func (v *volume) follow(s *moorv1alpha1.WriterClaimStatus) {
	granted := s.Phase == moorv1alpha1.ClaimGranted && (s.Holder != v.restored.dpu || s.Epoch != v.restored.epoch)
	for i := range v.tenures {
		v.tenures[i].follow(s, granted)
	}
	if granted && !slices.ContainsFunc(v.tenures, func(t tenure) bool { return !t.over }) {
		v.tenures = append(v.tenures, tenure{dpu: s.Holder, epoch: s.Epoch})
	}
}

func (t *tenure) follow(s *moorv1alpha1.WriterClaimStatus, granted bool) {
	switch {
	case t.over:
	case !t.unknown:
		t.over = !holds(s, *t)
	case granted && s.Holder == t.dpu: // the claim tells of it again, or of another number of the same DPU
		t.unknown, t.epoch = false, s.Epoch
	default:
		t.over = granted || t.gone(s)
	}
}

// Restore takes notice of a restore of the DPU cluster, which ends no right to write and
// gives none.
func (j *Judge) Restore(restore func()) {
	j.restoring = true
	defer func() { j.restoring = false }()
	restore()
}

// restore notes what the claim, nil if it is gone, tells of since it was restored. The grant
// that was the last of all counts again.
func (v *volume) restore(claim *moorv1alpha1.WriterClaim) {
	v.restored = tenure{}
	if claim != nil && claim.Status != nil {
		v.restored = tenure{dpu: claim.Status.Holder, epoch: claim.Status.Epoch}
	}
	if n := len(v.tenures); n > 0 && v.restored.dpu != "" && claim.Status.Phase != moorv1alpha1.ClaimLost && holds(claim.Status, v.tenures[n-1]) {
		v.restored = tenure{}
		if v.tenures[n-1].over {
			v.tenures = append(v.tenures, tenure{dpu: claim.Status.Holder, epoch: claim.Status.Epoch})
		}
		return
	}
	for i := range v.tenures {
		v.tenures[i].unknown = true
	}
}

// gone reports whether a claim that had lost its record has it as one that may write no more.
func (t *tenure) gone(s *moorv1alpha1.WriterClaimStatus) bool {
	listed := s.Phase == moorv1alpha1.ClaimLost && holds(s, *t)
	t.listed = t.listed || listed
	return t.listed && !listed
}

// unchanged reports whether a claim says the same of the right to write as before.
func unchanged(before, claim *moorv1alpha1.WriterClaim) bool {
	return before != nil && equality.Semantic.DeepEqual(before.Status, claim.Status)
}

// holds reports whether the claim is held for the DPU of a tenure as it was then.
func holds(s *moorv1alpha1.WriterClaimStatus, t tenure) bool {
	switch s.Phase {
	case moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing:
		return s.Holder == t.dpu && s.Epoch == t.epoch
	case moorv1alpha1.ClaimLost:
		return slices.ContainsFunc(s.Lost, func(h moorv1alpha1.LostHolder) bool { return h.DPU == t.dpu })
	}
	return false
}

// Shows is the number of the last grant to the DPU, 0 if it never had one.
func (j *Judge) Shows(dpu, name string) int64 {
	v := j.of(name)
	v.showing[dpu] = true
	j.Look(name)
	for i := len(v.tenures) - 1; i >= 0; i-- {
		if v.tenures[i].dpu == dpu {
			return int64(i + 1)
		}
	}
	return 0
}

// Hides takes notice of the end of that.
func (j *Judge) Hides(dpu, name string) { delete(j.of(name).showing, dpu) }

// Look looks whether two show the volume, after something has changed about that.
func (j *Judge) Look(name string) {
	var who []string
	for dpu := range j.of(name).showing {
		if j.Writes(dpu, name) {
			who = append(who, dpu)
		}
	}
	if len(who) > 1 {
		slices.Sort(who)
		j.Find(TwoShow, "volume %s is shown by %v, whose hosts write", name, who)
	}
}

// Accepted judges a write.
func (j *Judge) Accepted(w hardware.Write) {
	j.Accept++
	v := j.of(w.Volume)
	if w.Epoch == 0 {
		j.Find(NoRight, "volume %s: a write of %s was accepted, which was never granted the volume", w.Volume, w.DPU)
		return
	}
	t := v.tenures[w.Epoch-1]
	switch {
	case w.Epoch < v.highest:
		last := v.tenures[v.highest-1]
		j.Find(OlderWrite, "volume %s: a write of %s under epoch %d was accepted after one of %s under epoch %d", w.Volume, w.DPU, t.epoch, last.dpu, last.epoch)
	case t.over:
		j.Find(LateWrite, "volume %s: a write of %s under epoch %d was accepted after that epoch was over", w.Volume, w.DPU, t.epoch)
	}
	v.highest = max(v.highest, w.Epoch)
}

// Tenure is the epoch of the claim under which the DPU has the volume now, and whether
// it has.
func (j *Judge) Tenure(dpu, name string) (int64, bool) {
	for _, t := range j.of(name).tenures {
		if t.dpu == dpu && !t.over {
			return t.epoch, true
		}
	}
	return 0, false
}
