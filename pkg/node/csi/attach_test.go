package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// attachments remembers what this node has and in which order it was asked.
type attachments struct {
	h                    *host
	has                  map[string]provisioner.AttachSpec
	attachErr, detachErr error
	log                  []string
}

func (a *attachments) Attach(_ context.Context, s provisioner.AttachSpec) (provisioner.Attachment, error) {
	a.log = append(a.log, "attach "+s.VolumeID+" to "+s.Node)
	if a.attachErr == nil || provisioner.Uncertain(a.attachErr) {
		a.has[s.VolumeID] = s
	}
	return provisioner.Attachment{PublishContext: map[string]string{"from": "attach"}}, a.attachErr
}

func (a *attachments) Detach(_ context.Context, id, node string) error {
	if a.h.open[id] {
		return errors.New("the device is still open")
	}
	a.log = append(a.log, "detach "+id+" from "+node)
	if a.detachErr == nil {
		delete(a.has, id)
	}
	return a.detachErr
}

// nodeBed is a bed whose node asks for volumes by itself.
func nodeBed(t *testing.T) (*bed, *attachments) {
	t.Helper()
	b := newBed(t)
	a := &attachments{h: b.h, has: map[string]provisioner.AttachSpec{}}
	b.o.Attachments = a
	return b, a
}

func TestNodeAttachLife(t *testing.T) {
	b, a := nodeBed(t)
	c := fsCap(snw, "")
	for range 2 {
		noError(t, b.stageV(t, "v1", c))
	}
	if got := b.h.last.PublishContext["from"]; got != "attach" {
		t.Errorf("the device was opened by another publish context: %v", b.h.last.PublishContext)
	}
	for range 2 {
		noError(t, b.unstageV(t))
	}
	want := []string{"attach v1 to n1", "attach v1 to n1", "detach v1 from n1", "detach v1 from n1"}
	if d := cmp.Diff(want, a.log); d != "" || len(a.has) != 0 {
		t.Errorf("has %v; -want +got:\n%s", a.has, d)
	}
}

func TestNodeAttachReadOnlyMany(t *testing.T) {
	b, a := nodeBed(t)
	b.m.formatted["/dev/nvme0n1"] = "ext4"
	noError(t, b.stageV(t, "v1", fsCap(mnro, "")))
	if s := a.has["v1"]; !s.ReadOnly || s.AccessModes[0] != provisioner.ReadOnlyMany {
		t.Errorf("asked for %+v", s)
	}
}

// TestNothingIsLeaked: after a final error the kubelet asks for no unstage, so
// nothing may be left; after an uncertain one it does, so all may be.
func TestNothingIsLeaked(t *testing.T) {
	busy := fmt.Errorf("a moment: %w", provisioner.ErrBusy)
	for name, tc := range map[string]struct {
		play      func(*bed, *attachments)
		cap       *csispec.VolumeCapability
		uncertain bool
		left      bool
		words     string
	}{
		"not attached in time": {play: func(_ *bed, a *attachments) { a.attachErr = context.DeadlineExceeded }, uncertain: true, left: true},
		"never attached":       {play: func(_ *bed, a *attachments) { a.attachErr = provisioner.ErrPrecondition }},
		"asked before, then no": {play: func(_ *bed, a *attachments) {
			a.has["v1"] = provisioner.AttachSpec{}
			a.attachErr = provisioner.ErrNotFound
		}},
		"no device in time":    {play: func(b *bed, _ *attachments) { b.h.err = provisioner.ErrUnavailable }, uncertain: true, left: true},
		"no such device":       {play: func(b *bed, _ *attachments) { b.h.err = provisioner.ErrInvalid }},
		"another's data":       {play: func(b *bed, _ *attachments) { b.m.ensureErr = hostdev.ErrForeign }},
		"mount failed halfway": {play: func(b *bed, _ *attachments) { b.m.mountErr = errors.New("no") }, uncertain: true, left: true, words: "stays attached"},
		"not given back": {
			play:      func(b *bed, a *attachments) { b.m.ensureErr = hostdev.ErrForeign; a.detachErr = busy },
			uncertain: true, left: true, words: "give the volume back",
		},
		"not given back for good": {
			play: func(b *bed, a *attachments) {
				b.m.ensureErr = hostdev.ErrForeign
				a.detachErr = provisioner.ErrPrecondition
			},
			uncertain: true, left: true, words: "give the volume back",
		},
		"shared file system": {play: func(*bed, *attachments) {}, cap: fsCap(csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, ""), words: "several nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			b, a := nodeBed(t)
			tc.play(b, a)
			c := tc.cap
			if c == nil {
				c = fsCap(snw, "")
			}
			err := b.stageV(t, "v1", c)
			if err == nil || provisioner.Uncertain(err) != tc.uncertain || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("error %v, want uncertain %v with %q", err, tc.uncertain, tc.words)
			}
			if left := len(a.has) > 0; left != tc.left {
				t.Errorf("left attached: %v, want %v", left, tc.left)
			}
			a.attachErr, a.detachErr = nil, nil
			noError(t, b.unstageV(t))
			if len(a.has) != 0 {
				t.Errorf("still attached after an unstage: %v", a.has)
			}
		})
	}
}

// TestRunningPodKeepsItsVolume: a stage that is repeated and fails does not
// take the volume away under the mount.
func TestRunningPodKeepsItsVolume(t *testing.T) {
	b, a := nodeBed(t)
	c := fsCap(snw, "")
	noError(t, b.stageV(t, "v1", c))
	b.h.err = provisioner.ErrInvalid
	if err := b.stageV(t, "v1", c); !provisioner.Uncertain(err) {
		t.Errorf("error %v, want an uncertain one", err)
	}
	if len(a.has) == 0 || b.m.index(b.staging) < 0 {
		t.Error("the volume was taken from under its mount")
	}
}

// TestUnstageKeepsWhatIsInUse: as long as something is mounted the volume is
// not given back.
func TestUnstageKeepsWhatIsInUse(t *testing.T) {
	b, a := nodeBed(t)
	noError(t, b.stageV(t, "v1", fsCap(snw, "")))
	b.m.unmountErr = errors.New("busy")
	wantError(t, b.unstageV(t), provisioner.ErrBusy, "")
	if len(a.has) == 0 {
		t.Error("given back while mounted")
	}
	b.m.unmountErr = nil
	a.detachErr = fmt.Errorf("still going: %w", context.DeadlineExceeded)
	wantError(t, b.unstageV(t), context.DeadlineExceeded, "")
	a.detachErr = provisioner.ErrNotFound
	noError(t, b.unstageV(t))
}
