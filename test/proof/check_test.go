package proof

import (
	"slices"
	"strings"
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/showlog"
	"github.com/moor-storage/moor/reference/writelog"
)

// receipts are those of epochs 1 and on, one for each holder.
func receipts(holders ...string) []moorv1alpha1.Receipt {
	var out []moorv1alpha1.Receipt
	for i, holder := range holders {
		out = append(out, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: holder, Epoch: int64(i + 1)})
	}
	return out
}

func free(at time.Duration, epoch int64, r ...moorv1alpha1.Receipt) State {
	return State{Phase: moorv1alpha1.ClaimFree, Epoch: epoch, Receipts: r, At: at}
}

func granted(at time.Duration, holder string, epoch int64, r ...moorv1alpha1.Receipt) State {
	return State{Phase: moorv1alpha1.ClaimGranted, Holder: holder, Epoch: epoch, Receipts: r, At: at}
}

func fencing(at time.Duration, holder string, epoch int64, r ...moorv1alpha1.Receipt) State {
	return State{Phase: moorv1alpha1.ClaimFencing, Holder: holder, Epoch: epoch, Receipts: r, At: at}
}

// written is a log of writes: who, one instant after another from 1 on.
func written(by ...string) []writelog.Write {
	var out []writelog.Write
	for i, dpu := range by {
		out = append(out, writelog.Write{Seq: uint64(i + 1), DPU: dpu, Length: 4096, Monotonic: time.Duration(i + 1)})
	}
	return out
}

// failedOver is the history of a failover from a to b: a writes at 1 and 2, b
// from 3 on.
func failedOver() []State {
	return []State{
		free(1, 0), granted(1, "a", 1), fencing(2, "a", 1),
		free(2, 1, receipts("a")...), granted(3, "b", 2, receipts("a")...),
	}
}

func TestCheck(t *testing.T) {
	a, ab := receipts("a"), receipts("a", "b")
	long := strings.Repeat("worker", 20)
	full := receipts("a", "b", "a", "b", "a", "b", "a", "b", "a")
	for _, c := range []struct {
		name     string
		states   []State
		writes   []writelog.Write
		ack, got string
		want     []Rule
	}{
		{name: "nothing"},
		{name: "failover", states: failedOver(), writes: written("a", "a", "b", "b"), ack: "1 2 after", got: "1 2 after"},
		{name: "seen from the second grant on", states: failedOver()[4:], writes: written("a", "a", "b")},
		{name: "no writes under the second epoch", states: []State{free(2, 2, ab...), granted(3, "c", 3, ab...)}, writes: written("a", "a", "c")},
		{name: "the same holder twice", states: []State{granted(1, "a", 1), free(2, 1, a...), granted(3, "a", 2, a...)}, writes: written("a", "a", "a")},
		{name: "older receipts than the claim keeps", states: []State{free(20, 9, full[1:]...)}, writes: written("b", "a")},
		{name: "a long name", states: []State{granted(1, long, 1)}, writes: written(writelog.Short(long))},
		{name: "times are not known", states: []State{granted(0, "a", 1), free(0, 1, a...)}, writes: written("a", "a", "a")},
		{name: "more is read than was acknowledged", ack: "1 2", got: "0 1 x 2 y"},

		{name: "the old one after the new one", states: failedOver(), writes: written("a", "a", "b", "a"), want: []Rule{RuleOneWriter}},
		{name: "the old one in between", states: failedOver(), writes: written("a", "a", "b", "a", "a", "b"), want: []Rule{RuleOneWriter}},
		{name: "runs against the order", states: failedOver(), writes: written("b", "a"), want: []Rule{RuleOneWriter}},
		{name: "after the end, before any other", states: failedOver()[:4], writes: written("a", "a", "a"), want: []Rule{RuleOneWriter}},
		{name: "between two epochs of its own", states: []State{granted(1, "a", 1), free(1, 1, a...), granted(2, "b", 2, a...), free(4, 2, ab...), granted(5, "a", 3, ab...)}, writes: written("a", "b", "a", "b"), want: []Rule{RuleOneWriter}},
		{name: "never held", states: failedOver(), writes: written("a", "x", "b"), want: []Rule{RuleHeld}},
		{name: "no claim at all", writes: written("a"), want: []Rule{RuleHeld}},

		{name: "epoch goes back", states: []State{free(1, 2, ab...), granted(1, "c", 1)}, want: []Rule{RuleGrows, RuleOneHolder}},
		{name: "epoch granted again", states: []State{free(1, 1, a...), granted(2, "a", 1, a...)}, want: []Rule{RuleReceipt, RuleGrows}},
		{name: "two holders", states: []State{granted(1, "a", 1), granted(2, "b", 1)}, want: []Rule{RuleOneHolder}},
		{name: "the receipt names another", states: []State{granted(1, "a", 1), free(2, 1, receipts("b")...)}, want: []Rule{RuleOneHolder}},
		{name: "no receipt", states: []State{granted(1, "a", 1), free(2, 1), granted(2, "b", 2)}, want: []Rule{RuleReceipt}},
		{name: "a receipt is taken back", states: []State{granted(1, "a", 1), free(2, 1, a...), granted(2, "b", 2)}, want: []Rule{RuleReceipt}},
		{name: "a receipt before the end", states: []State{fencing(1, "a", 1, a...)}, want: []Rule{RuleReceipt}},
		{name: "a hole in the epochs", states: []State{free(1, 1, a...), granted(2, "a", 3, a...)}, want: []Rule{RuleReceipt}},
		{name: "a hole in the receipts kept", states: []State{free(1, 9, append(slices.Clone(full[:7]), full[8])...)}, want: []Rule{RuleReceipt}},
		{name: "granted while held", states: []State{granted(1, "a", 1), granted(2, "b", 2, a...)}, want: []Rule{RulePhases}},
		{name: "Fencing to Granted", states: []State{fencing(1, "a", 1), granted(2, "a", 1)}, want: []Rule{RulePhases}},
		{name: "Free to Fencing", states: []State{free(1, 0), fencing(2, "a", 1)}, want: []Rule{RulePhases}},
		{name: "granted without a holder", states: []State{granted(1, "", 1)}, want: []Rule{RulePhases}},

		{name: "a hole in the log", states: failedOver(), writes: written("a", "a", "b")[1:], want: []Rule{RuleLog}},
		{name: "a clock that goes back", states: failedOver(), writes: []writelog.Write{{Seq: 1, DPU: "a", Monotonic: 2}, {Seq: 2, DPU: "a", Monotonic: 1}}, want: []Rule{RuleLog}},

		{name: "a line is lost", ack: "1 2 3", got: "1 3", want: []Rule{RuleAcknowledged}},
		{name: "one of two like lines is lost", ack: "1 1", got: "1", want: []Rule{RuleAcknowledged}},
		{name: "lines change places", ack: "1 2 3", got: "1 3 2", want: []Rule{RuleOrder}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := History{Volume: "v", States: c.states, Writes: c.writes}
			h.Journals = []Journal{{Name: "j", Acknowledged: strings.Fields(c.ack), Read: strings.Fields(c.got)}}
			got := Check(h)
			if rules := broken(got); !slices.Equal(rules, c.want) {
				t.Errorf("broken: %q, want %q\n%v", rules, c.want, got)
			}
			for _, v := range got {
				if !strings.HasPrefix(v.String(), string(v.Rule)+": ") || len(v.Words) < 20 {
					t.Errorf("words: %q", v)
				}
			}
		})
	}
}

// TestCheckShown: who may read the volume, and who may show it when, in a failover from a to b that a
// ended by its own word, or another for it.
func TestCheckShown(t *testing.T) {
	storage := failedOver()
	for i := range storage {
		for k := range storage[i].Receipts {
			storage[i].Receipts[k].Kind = moorv1alpha1.ReceiptStorage
		}
	}
	dated := failedOver()
	dated[4].NotBefore = 2
	shown := func(dpu string, begin, end time.Duration) showlog.Exposure {
		return showlog.Exposure{DPU: dpu, Begin: begin, End: end, Ended: end > 0}
	}
	for _, c := range []struct {
		name   string
		states []State
		shown  []showlog.Exposure
		reads  []writelog.Access
		want   []Rule
	}{
		{name: "one after the other", states: failedOver(), shown: []showlog.Exposure{shown("a", 1, 2), shown("b", 3, 0)}, reads: []writelog.Access{{DPU: "a", Monotonic: 2}, {DPU: "b", Monotonic: 4}, {DPU: "b", Monotonic: 3}}},
		{name: "shown again and again", states: failedOver(), shown: []showlog.Exposure{shown("a", 1, 1), shown("a", 1, 2), shown("b", 3, 4), shown("b", 4, 5)}},
		{name: "the storage turns a away, which shows it on", states: storage, shown: []showlog.Exposure{shown("a", 1, 0), shown("b", 3, 0)}},
		{name: "a shows it on after its word", states: failedOver(), shown: []showlog.Exposure{shown("a", 1, 0), shown("b", 3, 0)}, want: []Rule{RuleWithdrawn}},
		{name: "a shows it for longer than its word", states: failedOver(), shown: []showlog.Exposure{shown("a", 1, 3)}, want: []Rule{RuleWithdrawn}},
		{name: "a shows it again", states: storage, shown: []showlog.Exposure{shown("a", 3, 4)}, want: []Rule{RuleShown}},
		{name: "b shows it too early", states: dated, shown: []showlog.Exposure{shown("b", 1, 0)}, want: []Rule{RuleShown}},
		{name: "another shows it", states: failedOver(), shown: []showlog.Exposure{shown("x", 1, 2)}, want: []Rule{RuleShown}},
		{name: "a reads on", states: failedOver(), reads: []writelog.Access{{DPU: "a", Monotonic: 3}}, want: []Rule{RuleReaders}},
		{name: "b reads too early", states: dated, reads: []writelog.Access{{DPU: "b", Monotonic: 1}}, want: []Rule{RuleReaders}},
		{name: "another reads", states: failedOver(), reads: []writelog.Access{{DPU: "x", Monotonic: 1}, {DPU: "x", Monotonic: 2}}, want: []Rule{RuleReaders}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Check(History{Volume: "v", States: c.states, Exposures: c.shown, Reads: c.reads})
			if rules := broken(got); !slices.Equal(rules, c.want) || len(got) != len(c.want) {
				t.Errorf("broken: %q, want %q\n%v", rules, c.want, got)
			}
		})
	}
}

// broken are the rules broken, each once, in the order of the violations.
func broken(violations []Violation) []Rule {
	var out []Rule
	for _, v := range violations {
		if !slices.Contains(out, v.Rule) {
			out = append(out, v.Rule)
		}
	}
	return out
}

func TestAfter(t *testing.T) {
	h := History{Volume: "v", States: failedOver(), Writes: written("a", "a", "b", "a", "a")}
	if n, err := h.After("a", 1); err != nil || n != 2 {
		t.Errorf("%d writes, %v", n, err)
	}
	if n, err := h.After("b", 2); err == nil {
		t.Errorf("epoch 2 is not over: %d writes", n)
	}
}
