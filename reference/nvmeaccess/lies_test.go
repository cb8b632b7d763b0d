package nvmeaccess

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/nvmeaccess/spdktest"
)

// TestLies: epoch 1 is connected, with a write that the target has taken and not done
// (land). The target lies; Fence says in words what it waits for, again when it is
// repeated, also by a process that starts anew, and answers after the lie is over.
func TestLies(t *testing.T) {
	for name, c := range map[string]struct {
		lie   func(b *bed)
		words string
		// after ends what is waited for.
		after func(b *bed, land func())
		// lost: the write is not waited for, since the target has it no more.
		lost bool
	}{
		"it waits for the queue pair, and gives up": {nil, "still has controller 1", land, false},
		"it answers a removal before the queue pair is gone": {
			func(b *bed) { b.lie(func(l *spdktest.Lies) { l.AnswersEarly = true }) }, `host "` + HostNQN(base, 1) + `" still has controller 1`, land, false,
		},
		"it removes the host and disconnects nothing": {
			func(b *bed) { b.lie(func(l *spdktest.Lies) { l.KeepsConnections = true }) }, "still has controller 1",
			func(b *bed, _ func()) { b.target.Restart() }, true,
		},
		"it answers a removal and does nothing": {
			func(b *bed) { b.lie(func(l *spdktest.Lies) { l.ForgetsRemovals = true }) }, "still admits host",
			func(b *bed, land func()) {
				land()
				b.lie(func(l *spdktest.Lies) { l.ForgetsRemovals = false })
			}, false,
		},
		"it admits any host": {
			func(b *bed) { b.target.AllowAnyHost(sub, true) }, "admits any host, whatever its name: switch allow_any_host off",
			func(b *bed, land func()) {
				land()
				b.target.AllowAnyHost(sub, false)
			}, false,
		},
		"another subsystem has the bdev": {
			func(b *bed) { b.target.AddSubsystem(sub+"2", "bdev-v") }, "has bdev bdev-v of subsystem",
			func(b *bed, land func()) {
				land()
				b.target.RemoveSubsystem(sub + "2")
			}, false,
		},
		"it lost the subsystem": {
			func(b *bed) { b.target.Restart(); b.target.RemoveSubsystem(sub) }, "it has no subsystem",
			func(b *bed, _ func()) { b.target.AddSubsystem(sub, "bdev-v") }, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			write, err := b.connected(t, 1).Send("1")
			wantNil(t, "send", err)
			if c.lie != nil {
				c.lie(b)
			}
			err = b.Fence(t.Context(), "v", 2)
			wantWords(t, "fence", err, c.words)
			for range 2 {
				b.restart(t)
				if err := b.Fence(t.Context(), "v", 2); !errors.Is(err, provisioner.ErrUnavailable) {
					t.Fatalf("fence, repeated: %v", err)
				}
			}
			c.after(b, write)
			wantNil(t, "fence in the end", b.Fence(t.Context(), "v", 2))
			if got := len(b.target.Written()); got != map[bool]int{false: 1, true: 0}[c.lost] {
				t.Errorf("%d writes before the answer", got)
			}
			write()
			if got := b.target.Written(); len(got) > 1 || c.lost && len(got) > 0 {
				t.Errorf("written after the answer: %v", got)
			}
		})
	}
}

func land(_ *bed, land func()) { land() }

// TestFaults: the faults of single calls of a fence. Whatever one call did, Fence answers
// only by what the target lists: within the same call, since it reads again.
func TestFaults(t *testing.T) {
	methods := []string{"get_subsystems", "subsystem_remove_host", "subsystem_get_qpairs", "subsystem_get_controllers"}
	faults := map[string]spdktest.Fault{"error": spdktest.Error, "lost": spdktest.Lost, "late": spdktest.Late, "half": spdktest.Half, "empty": spdktest.Empty}
	for _, method := range methods {
		for name, fault := range faults {
			t.Run(method+" "+name, func(t *testing.T) {
				b := newBed(t)
				c := b.connected(t, 1)
				wantNil(t, "write", c.Write("1"))
				b.once(method, fault)
				b.clock.moved = func(time.Duration) { b.target.DoLate() }
				b.target.Calls()
				wantNil(t, "fence", b.Fence(t.Context(), "v", 2))
				if n := len(slices.DeleteFunc(b.target.Calls(), func(m string) bool { return m != "nvmf_get_subsystems" })); n < 4 {
					t.Errorf("the target was read %d times, which shows no second round", n)
				}
				if c.Write("2") == nil || len(b.target.Hosts(sub)) != 0 {
					t.Errorf("epoch 1 writes after the answer; admitted are %v", b.target.Hosts(sub))
				}
			})
		}
	}
}

// TestSilence: what does not answer at all is not done, for a fence and an admission.
func TestSilence(t *testing.T) {
	for name, silence := range map[string]func(b *bed){
		"it is gone":          func(b *bed) { b.stop() },
		"it hangs at reading": func(b *bed) { b.once("get_subsystems", spdktest.Hang) },
		"it hangs at removal": func(b *bed) { b.once("subsystem_remove_host", spdktest.Hang) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			c := b.connected(t, 1)
			silence(b)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := b.Fence(ctx, "v", 2)
			if !provisioner.Uncertain(err) {
				t.Fatalf("fence: %v", err)
			}
			if _, err := b.Admit(t.Context(), "v", 1); !errors.Is(err, provisioner.ErrPrecondition) {
				t.Fatalf("epoch 1 is admitted after a fence without an answer: %v", err)
			}
			if name != "it is gone" {
				wantNil(t, "fence, repeated", b.Fence(t.Context(), "v", 2))
				if c.Write("2") == nil {
					t.Error("epoch 1 writes after the answer")
				}
			}
		})
	}
}

// TestHiddenWrites: a write that lands after the target lists its queue pair no more is
// waited for by the drain, and by nothing else: without one it lands after the answer.
func TestHiddenWrites(t *testing.T) {
	for drain, after := range map[time.Duration]bool{-1: true, time.Second: true, 3 * time.Second: false} {
		b := newBed(t)
		o := b.options()
		o.Drain = drain
		a, err := New(o)
		wantNil(t, "new", err)
		b.Access = a
		write, err := b.connected(t, 1).Send("1")
		wantNil(t, "send", err)
		b.lie(func(l *spdktest.Lies) { l.HidesQueues = true })
		ends := b.clock.Now().Add(2 * time.Second) // when the write lands at the latest
		b.clock.moved = func(d time.Duration) {
			if !b.clock.Now().Add(d).Before(ends) {
				write()
			}
		}
		wantNil(t, "fence", b.Fence(t.Context(), "v", 2))
		if got := len(b.target.Written()) == 0; got != after {
			t.Errorf("drain %s: the write lands after the answer: %t, want %t", drain, got, after)
		}
	}
}

// TestLateAdmission: an admission that was not answered may be executed after the fence
// has read that there is none. Fence counts on nothing before LateCall has passed, also
// when the admission was repeated with success, and by a process that was killed.
func TestLateAdmission(t *testing.T) {
	for _, repeated := range []bool{false, true} {
		for _, killed := range []bool{false, true} {
			b := newBed(t)
			b.once("subsystem_add_host", spdktest.Late)
			if _, err := b.Admit(t.Context(), "v", 1); !errors.Is(err, provisioner.ErrUnavailable) {
				t.Fatalf("admit: %v", err)
			}
			if repeated {
				_, err := b.Admit(t.Context(), "v", 1)
				wantNil(t, "admit again", err)
			}
			if killed {
				b.restart(t)
			}
			began := b.clock.Now()
			wantWords(t, "fence", b.Fence(t.Context(), "v", 2), "was asked for and not answered")
			b.target.DoLate()
			late, err := b.target.Connect(sub, HostNQN(base, 1))
			wantNil(t, "connect at the epoch that is over", err)
			for b.Fence(t.Context(), "v", 2) != nil {
				if b.clock.Now().Sub(began) > 2*time.Minute {
					t.Fatal("the fence never answers")
				}
			}
			if took := b.clock.Now().Sub(began); took < DefaultLateCall {
				t.Errorf("it answered after %s", took)
			}
			if late.Write("1") == nil || len(b.target.Hosts(sub)) != 0 {
				t.Error("what was admitted late writes on")
			}
			began = b.clock.Now()
			wantNil(t, "fence, once more", b.Fence(t.Context(), "v", 2))
			if took := b.clock.Now().Sub(began); took > 2*DefaultDrain {
				t.Errorf("the late call is waited for again: %s", took)
			}
		}
	}
}

// TestDrainBeginsAnew: what comes back within the drain has it begin anew.
func TestDrainBeginsAnew(t *testing.T) {
	for name, letIn := range map[string]func(b *bed, on bool){
		"a host": func(b *bed, on bool) {
			if on {
				b.target.Admit(sub, HostNQN(base, 1))
			}
		},
		"any host, for a moment": func(b *bed, on bool) { b.target.AllowAnyHost(sub, on) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.lie(func(l *spdktest.Lies) { l.HidesQueues = true })
			began, landed := b.clock.Now(), false
			var back *spdktest.Connection
			var write func()
			b.clock.moved = func(time.Duration) {
				switch now := b.clock.Now().Sub(began); {
				case now >= DefaultDrain*5/4 && !landed:
					landed = true
					write()
				case back != nil:
					back.Close()
				case now >= DefaultDrain/2:
					var err error
					letIn(b, true)
					back, err = b.target.Connect(sub, HostNQN(base, 1))
					wantNil(t, "connect", err)
					letIn(b, false)
					write, err = back.Send("1")
					wantNil(t, "send", err)
				}
			}
			wantNil(t, "fence", b.Fence(t.Context(), "v", 2))
			if !landed {
				t.Errorf("it answered after %s, before the write landed", b.clock.Now().Sub(began))
			}
		})
	}
}

// TestRefusedAdmission: an admission that the target has refused is not waited for.
func TestRefusedAdmission(t *testing.T) {
	b := newBed(t)
	b.once("subsystem_add_host", spdktest.Error)
	_, err := b.Admit(t.Context(), "v", 1)
	wantWords(t, "admit", err, "Internal error")
	began := b.clock.Now()
	wantNil(t, "fence", b.Fence(t.Context(), "v", 2))
	if took := b.clock.Now().Sub(began); took > 2*DefaultDrain {
		t.Errorf("the fence took %s", took)
	}
}
