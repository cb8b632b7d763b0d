package exposures

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
)

// TestSingleWriter: at the end of the lease all goes that the host may see, or may be about to see, but for
// devices that are known to be of volumes with many writers. In doubt the DPU does not say that it shows
// nothing.
func TestSingleWriter(t *testing.T) {
	ready, virtiofs := provisioner.Exposure{Device: "d", Hidden: true}, provisioner.Exposure{Device: "d", Hidden: true, Tag: "t"}
	for name, tc := range map[string]struct {
		shows  []provisioner.Exposure
		all    []storagev1alpha1.VolumeAttachment
		unread error // of the cache
		down   error
		goes   []string
	}{
		"nothing is shown":                {},
		"one of one writer":               {shows: visible("d"), all: []storagev1alpha1.VolumeAttachment{attached("d", false)}, goes: []string{"d"}},
		"one of many writers":             {shows: visible("d"), all: []storagev1alpha1.VolumeAttachment{attached("d", true)}},
		"one of each":                     {shows: visible("d", "e"), all: []storagev1alpha1.VolumeAttachment{attached("d", true), attached("e", false)}, goes: []string{"e"}},
		"one of no attachment":            {shows: visible("d"), goes: []string{"d"}},
		"the cache cannot be read":        {shows: visible("d"), unread: errDown, goes: []string{"d"}},
		"the name is its subsystem's":     {shows: visible(snap.NQN("d")), all: []storagev1alpha1.VolumeAttachment{attached("d", true)}},
		"it stands ready":                 {shows: []provisioner.Exposure{ready}, all: []storagev1alpha1.VolumeAttachment{attached("d", false)}},
		"by virtio-fs, which may be seen": {shows: []provisioner.Exposure{virtiofs}, all: []storagev1alpha1.VolumeAttachment{attached("d", false)}, goes: []string{"d"}},
		"a part of it is there":           {shows: []provisioner.Exposure{{Device: "d"}}, goes: []string{"d"}},
		"its name cannot be told, and one of many writers has none yet": {shows: visible(""), all: []storagev1alpha1.VolumeAttachment{attached("", true)}, goes: []string{""}},
		"SNAP does not answer":                      {down: errDown},
		"SNAP does not answer, but for what it has": {shows: visible("d"), down: errDown, goes: []string{"d"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, map[string]*fakeService{"a": {shows: tc.shows, down: tc.down}})
			k.cache.all, k.cache.err = tc.all, tc.unread
			shows, err := k.ShowsSingleWriter(t.Context())
			if want := len(tc.goes) > 0 || tc.down != nil; shows != want || !errors.Is(err, tc.down) || tc.down == nil && err != nil {
				t.Errorf("it shows one: %v, %v", shows, err)
			}
			err = k.WithdrawSingleWriter(t.Context())
			if !errors.Is(err, tc.down) || tc.down == nil && err != nil {
				t.Errorf("withdrawn: %v", err)
			}
			got := k.services["a"].withdrawn
			if slices.Sort(got); !slices.Equal(got, tc.goes) {
				t.Errorf("withdrawn %q, want %q", got, tc.goes)
			}
		})
	}
}

// TestSingleWriterWithoutServices: a DPU on which no service has a socket cannot say that it shows nothing.
func TestSingleWriterWithoutServices(t *testing.T) {
	k := newKit(t, nil)
	for what, err := range map[string]error{
		"shows":    func() error { _, err := k.ShowsSingleWriter(t.Context()); return err }(),
		"withdraw": k.WithdrawSingleWriter(t.Context()),
	} {
		if !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "on DPU dpu-1: no SNAP service has a socket") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSingleWriterOfAServiceWithoutSocket: a driver that was just started asks the service on record, though
// that has no socket: it may show the device. What it says counts as all else.
func TestSingleWriterOfAServiceWithoutSocket(t *testing.T) {
	for name, down := range map[string]error{"and answers": nil, "and does not answer": errDown} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, map[string]*fakeService{"a": {shows: visible("d"), down: down}, "b": {}, "c": {}})
			k.cache.all = []storagev1alpha1.VolumeAttachment{attached("d", false), attached("e", false)}
			k.cache.all[0].Status.DPU = *k.onRecord("a", "d")
			k.cache.all[1].Status.DPU = *k.onRecord("b", "e") // has a socket, so it adds nothing
			k.unlink("a")
			if shows, err := k.ShowsSingleWriter(t.Context()); !shows || !errors.Is(err, down) || down == nil && err != nil {
				t.Errorf("it shows one: %v, %v", shows, err)
			}
			if err := k.WithdrawSingleWriter(t.Context()); !errors.Is(err, down) || down == nil && err != nil || !slices.Equal(k.services["a"].withdrawn, []string{"d"}) {
				t.Errorf("withdrawn %q, %v", k.services["a"].withdrawn, err)
			}
		})
	}
}

// TestRememberAll: the services of all attachments are remembered, and one that was unknown is told of,
// whichever of them it is.
func TestRememberAll(t *testing.T) {
	k := newKit(t, map[string]*fakeService{"a": {}, "b": {}, "c": {}})
	all := []storagev1alpha1.VolumeAttachment{attached("d", false), attached("e", false)}
	all[0].Status.DPU, all[1].Status.DPU = *k.onRecord("a", "d"), *k.onRecord("b", "e")
	for i, want := range []bool{true, false} {
		if got := k.rememberAll(all); got != want {
			t.Errorf("round %d: one was unknown: %v", i, got)
		}
	}
	all[0].Status.DPU = *k.onRecord("c", "d")
	if !k.rememberAll(all) {
		t.Error("the first is unknown, and that is not told")
	}
}

// slow is a service that takes its time over a withdrawal, and fails at one of a device.
type slow struct {
	*fakeService
	fails string
}

func (s slow) Withdraw(ctx context.Context, device string) error {
	select {
	case <-time.After(30 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	if device == s.fails {
		return errDown
	}
	return s.fakeService.Withdraw(ctx, device)
}

// TestWithdrawSingleWriterAtOnce: all devices are taken away at the same time, each is waited for, and one
// that fails is named.
func TestWithdrawSingleWriterAtOnce(t *testing.T) {
	k := newKit(t, map[string]*fakeService{"a": {shows: visible("d", "e", "f")}})
	k.Exposures.services.open = func(string) provisioner.DPU { return slow{k.services["a"], "e"} }
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		err := k.WithdrawSingleWriter(t.Context())
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("it took %s", took)
		}
		if !errors.Is(err, errDown) || !strings.Contains(err.Error(), "take device e away from the host: ") || strings.Contains(err.Error(), "device d") {
			t.Errorf("got %v", err)
		}
		if left := k.services["a"].shows; len(left) != 1 || left[0].Device != "e" {
			t.Errorf("left are %+v", left)
		}
	})
}

// TestWithdrawSingleWriterEndsPasses: a pass that may be showing a device is ended first.
func TestWithdrawSingleWriterEndsPasses(t *testing.T) {
	k := newKit(t, map[string]*fakeService{"a": {}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k.Begin("v1-pvc", cancel)
	k.must(k.WithdrawSingleWriter(t.Context()))
	if ctx.Err() == nil {
		t.Error("the pass goes on")
	}
}
