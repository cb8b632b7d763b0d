package nvmeaccess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/nvmeaccess/spdktest"
)

// watched is a target each call of which a test makes.
type watched struct {
	Caller
	make func(method string, call func() error) error
}

func (w watched) Call(ctx context.Context, method string, params, result any) error {
	return w.make(method, func() error { return w.Caller.Call(ctx, method, params, result) })
}

// TestMarkFirst: what a fence and an admission rest on is durable before the target is asked.
func TestMarkFirst(t *testing.T) {
	b := newBed(t)
	var fenced int64
	asked := map[string]int{}
	b.caller = watched{b.caller, func(method string, call func() error) error {
		asked[method]++
		m, found, err := marks{b.dir}.load("v")
		if err != nil || !found || m.Fenced != fenced || (method == "nvmf_subsystem_add_host") != (len(m.Unanswered) == 1) {
			t.Errorf("%s: on record is %+v, %t, %v", method, m, found, err)
		}
		return call()
	}}
	b.connected(t, 1)
	b.target.Admit(sub, HostNQN(base, 1)) // a repetition asks for nothing
	b.connected(t, 1)
	fenced = 2
	wantNil(t, "fence", b.Fence(t.Context(), "v", 2))
	if asked["nvmf_subsystem_add_host"] != 1 || asked["nvmf_subsystem_remove_host"] != 1 {
		t.Errorf("asked %v", asked)
	}
	_, err := b.Admit(t.Context(), "v", 1)
	wantWords(t, "admit what is over", err, "epochs below 2 are over")
}

// TestMarkIsNotLost: a directory that was lost, or a file that is damaged, lets nothing in.
func TestMarkIsNotLost(t *testing.T) {
	for name, c := range map[string]struct {
		text, words string
		fence       bool // goes on
	}{
		"lost":                 {"", "not on record", true},
		"empty":                {" ", "is damaged", false},
		"half":                 {`{"volume":"v","fen`, "is damaged", false},
		"of another volume":    {`{"volume":"w","fenced":3}`, "is damaged", false},
		"of no epoch possible": {`{"volume":"v","fenced":-3}`, "is damaged", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.connected(t, 1)
			wantNil(t, "fence", b.Fence(t.Context(), "v", 2))
			path := marks{b.dir}.path("v", ".json")
			wantNil(t, "remove", os.Remove(path))
			if c.text != "" {
				wantNil(t, "damage", os.WriteFile(path, []byte(c.text), 0o600))
			}
			for _, epoch := range []int64{0, 1, 2} {
				_, err := b.Admit(t.Context(), "v", epoch)
				wantWords(t, "admit", err, c.words)
				if !errors.Is(err, provisioner.ErrPrecondition) {
					t.Errorf("admit: %v", err)
				}
			}
			if err := b.Fence(t.Context(), "v", 3); (err == nil) != c.fence {
				t.Errorf("fence: %v", err)
			}
			if c.fence {
				_, err := b.Admit(t.Context(), "v", 3)
				wantNil(t, "admit after a fence", err)
			}
		})
	}
}

// TestTargetRestarts: one that forgets its hosts lets nothing in, and the fence answers; the
// epoch that is not over is admitted again by a repetition.
func TestTargetRestarts(t *testing.T) {
	b := newBed(t)
	b.connected(t, 1)
	wantNil(t, "fence", b.Fence(t.Context(), "v", 2))
	b.connected(t, 2)
	b.lie(func(l *spdktest.Lies) { l.ForgetsHosts = true })
	b.target.Restart()
	for epoch := range int64(4) {
		if _, err := b.target.Connect(sub, HostNQN(base, epoch)); err == nil {
			t.Errorf("epoch %d is let in", epoch)
		}
	}
	wantNil(t, "fence after the restart", b.Fence(t.Context(), "v", 2))
	b.connected(t, 2)
	// One that brings back what it had admitted at some time is fenced again.
	b.target.Admit(sub, HostNQN(base, 1))
	b.target.Admit(sub, "nqn.2014-08.org.nvmexpress:uuid:of-another-program")
	wantNil(t, "fence after a restore", b.Fence(t.Context(), "v", 1))
	if got := b.target.Hosts(sub); !slices.Equal(got, []string{HostNQN(base, 2)}) {
		t.Errorf("admitted are %v", got)
	}
}

// TestTwoTargets: a volume that is exported twice is fenced when both say so.
func TestTwoTargets(t *testing.T) {
	b, other := newBed(t), newBed(t)
	o := b.options()
	o.Exports = func(context.Context, string) ([]Export, error) {
		return []Export{{b.caller, "t1", sub}, {other.caller, "t2", sub}}, nil
	}
	a, err := New(o)
	wantNil(t, "new", err)
	b.Access = a
	b.connected(t, 1)
	c, err := other.target.Connect(sub, HostNQN(base, 1))
	wantNil(t, "connect to the other", err)
	land, err := c.Send("1")
	wantNil(t, "send", err)
	wantWords(t, "fence", b.Fence(t.Context(), "v", 2), "target t2: host")
	land()
	wantNil(t, "fence", b.Fence(t.Context(), "v", 2))
}

// TestOneAtATime: of many callers, of two processes, each finds the record as the one
// before left it, and no epoch that is over stays admitted.
func TestOneAtATime(t *testing.T) {
	b := newBed(t)
	second, err := New(b.options())
	wantNil(t, "new", err)
	var working sync.Mutex
	b.caller = watched{b.caller, func(_ string, call func() error) error {
		if !working.TryLock() {
			t.Error("two are at the target at once")
			return call()
		}
		defer working.Unlock()
		return call()
	}}
	var all sync.WaitGroup
	for i := range int64(8) {
		for _, a := range []*Access{b.Access, second} {
			all.Go(func() {
				_, err := a.Admit(t.Context(), "v", i)
				if err != nil && !provisioner.Uncertain(err) && !errors.Is(err, provisioner.ErrPrecondition) {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := a.Fence(t.Context(), "v", i+1); err != nil && !provisioner.Uncertain(err) {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	wantNil(t, "fence", b.Fence(t.Context(), "v", 8))
	if got := b.target.Hosts(sub); len(got) != 0 {
		t.Errorf("admitted are %v", got)
	}
}

// TestBusy: a volume that another call works on is not touched, and the caller is told.
func TestBusy(t *testing.T) {
	b := newBed(t)
	unlock, err := marks{b.dir}.lock("v")
	wantNil(t, "lock", err)
	if _, err := b.Admit(t.Context(), "v", 1); !errors.Is(err, provisioner.ErrBusy) {
		t.Errorf("admit: %v", err)
	}
	if err := b.Fence(t.Context(), "v", 1); !errors.Is(err, provisioner.ErrBusy) {
		t.Errorf("fence: %v", err)
	}
	if calls := b.target.Calls(); len(calls) != 0 {
		t.Errorf("the target was asked %v", calls)
	}
	unlock()
	wantNil(t, "fence", b.Fence(t.Context(), "v", 1))
}

func TestRefused(t *testing.T) {
	b := newBed(t)
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"no base":           {errOf(New(Options{Dir: "x", Exports: b.options().Exports})), provisioner.ErrInvalid},
		"a base too long":   {errOf(New(Options{Dir: "x", Base: "nqn." + strings.Repeat("a", 199), Exports: b.options().Exports})), provisioner.ErrInvalid},
		"no directory":      {errOf(New(Options{Base: base, Exports: b.options().Exports})), provisioner.ErrInvalid},
		"a negative epoch":  {errOf(b.Admit(t.Context(), "v", -1)), provisioner.ErrInvalid},
		"no volume":         {b.Fence(t.Context(), "", 1), provisioner.ErrInvalid},
		"an unknown volume": {b.Fence(t.Context(), "w", 1), provisioner.ErrNotFound},
		"a fence of nothing": {
			b.Fence(t.Context(), "v", 0), provisioner.ErrInvalid,
		},
		"no directory there": {
			func() error {
				b := newBed(t)
				wantNil(t, "move", os.Rename(b.dir, filepath.Join(t.TempDir(), "moved")))
				return b.Fence(t.Context(), "v", 1)
			}(), provisioner.ErrUnavailable,
		},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	if _, err := New(Options{Dir: "x", Base: "nqn." + strings.Repeat("a", 198), Exports: b.options().Exports}); err != nil {
		t.Errorf("the longest base: %v", err)
	}
	wantNil(t, "delete", b.Delete(t.Context(), "v"))
	wantNil(t, "delete again", b.Delete(t.Context(), "v"))
	_, err := b.Admit(t.Context(), "v", 1)
	wantWords(t, "admit", err, "not on record")
}

func errOf[T any](_ T, err error) error { return err }

func TestHostNQN(t *testing.T) {
	for nqn, want := range map[string]string{
		base: "0 true", base + ":e1": "1 true", base + ":e9223372036854775807": "9223372036854775807 true",
		base + ":e9223372036854775808": "0 false", base + ":e0": "0 false", base + ":e01": "0 false", base + ":e+1": "0 false",
		base + ":e-1": "0 false", base + ":e": "0 false", base + ":e1 ": "0 false", base + ":1": "0 false", base + "x:e1": "0 false", "": "0 false",
	} {
		epoch, ok := EpochOf(base, nqn)
		if got := fmt.Sprint(epoch, ok); got != want {
			t.Errorf("%q is %s, want %s", nqn, got, want)
		}
	}
}

func FuzzEpochOf(f *testing.F) {
	f.Add(base, base+":e7")
	f.Add("nqn.a:e", "nqn.a:e:e1")
	f.Fuzz(func(t *testing.T, base, nqn string) {
		if epoch, ok := EpochOf(base, nqn); ok && (epoch < 0 || HostNQN(base, epoch) != nqn) {
			t.Errorf("%q of base %q is epoch %d, which is %q", nqn, base, epoch, HostNQN(base, epoch))
		}
	})
}
