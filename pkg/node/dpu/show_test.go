package dpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// promoted is a replica that stands ready and has just become the primary, under epoch 1.
func promoted(t *testing.T) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c, m, a := ready(t)
	c.role(a.Name, storagev1alpha1.RolePrimary)
	c.grant(a, 1)
	now := c.get(a.Name)
	return c, m, now
}

// TestShowReadyRefused: a right that is lost between the two reads of the claim shows nothing, and what could not be
// found out is a failure of the pass.
func TestShowReadyRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(*cluster, *machine)
		fails error
	}{
		"the right is lost":     {fault: func(c *cluster, _ *machine) { c.elsewhere() }},
		"the claim is not read": {fault: func(_ *cluster, m *machine) { m.o.Attachments.DPU.Live = silentReader(m) }, fails: errNoAnswer},
		"SNAP refuses": {fault: func(_ *cluster, m *machine) {
			m.inject(map[string]any{"method": "nvme_controller_attach_ns", "drop": true, "count": -1})
		}, fails: provisioner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := promoted(t)
			p := c.passOver(a.Name)
			tc.fault(c, m)
			shown, err := m.shower.showReady(t.Context(), p)
			if shown || !errors.Is(err, tc.fails) || tc.fails == nil && err != nil {
				t.Errorf("shown: %v, %v", shown, err)
			}
			if tc.fails == nil && !strings.Contains(p.refused, "dpu-2 holds it") {
				t.Errorf("refused by %q", p.refused)
			}
			m.clear()
			if m.shown()["dev_v1-pvc"].Visible || p.dpu.Attached {
				t.Errorf("shown: %v, %+v", m.shown(), p.dpu)
			}
		})
	}
}

func silentReader(m *machine) client.Reader {
	r := m.reading()
	r.silent = &storagev1alpha1.VolumeAttachment{}
	return r
}

// TestShowReadyOfAGoneVolume: what stands ready of a volume that is gone is not shown: what it was made of is not
// known any more.
func TestShowReadyOfAGoneVolume(t *testing.T) {
	c, m, a := promoted(t)
	v := &storagev1alpha1.Volume{}
	v.Name, v.Namespace = "v1", ns
	c.must(c.Delete(t.Context(), v))
	if now := m.settle(a.Name); now.Status.DPU.Attached || m.shown()["dev_v1-pvc"].Visible || !strings.Contains(now.Status.Message, "does not exist in the DPU cluster any more") {
		t.Errorf("got %+v, %v", now.Status, m.shown())
	}
}

// TestShowReadyIsOnRecord: a replica that was made ready by a driver that recorded no incarnation is shown after
// that is on record; and one that is not on record as ready is made by its vendor first.
func TestShowReadyIsOnRecord(t *testing.T) {
	c, m, a := promoted(t)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Incarnation = "" }))
	m.watched = func(d provisioner.DPU) provisioner.DPU {
		return &exposing{DPU: d, before: func() {
			if on := c.get(a.Name).Status.DPU; on.Incarnation == "" {
				t.Errorf("about to be shown, and on record is %+v", on)
			}
		}}
	}
	m.restartDriver()
	if m.settle(a.Name); !m.shown()["dev_v1-pvc"].Visible {
		t.Error("not shown")
	}
	c, m, a = promoted(t)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.PreEmulated = false }))
	c.must(os.Remove(m.pluginSocket()))
	if err := m.pass(a.Name); err == nil || m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("shown without its vendor: %v, %v", err, m.shown())
	}
}

// TestRestartIsOnRecord: after SNAP was started anew nothing is shown before that is on record: a driver that ends in between
// would not know which of the two has to drain.
func TestRestartIsOnRecord(t *testing.T) {
	c, m, a := attached(t)
	was := c.get(a.Name).Status.DPU.Incarnation
	m.emu.Restart()
	shows := 0
	m.watched = func(d provisioner.DPU) provisioner.DPU {
		return &exposing{DPU: d, before: func() {
			shows++
			if on := c.get(a.Name).Status.DPU; on.Incarnation == was {
				t.Errorf("about to be shown, and on record is %+v", on)
			}
		}}
	}
	m.restartDriver()
	if m.settle(a.Name); shows == 0 || !m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("told to show %d times, shown: %v", shows, m.shown())
	}
}

// TestRefusedReadsOnce: a pass whose right is refused does not read the claim for an exposure that is none.
func TestRefusedReadsOnce(t *testing.T) {
	c, m, a := attached(t)
	c.elsewhere()
	m.settle(a.Name)
	r := m.reading()
	if c.must(m.pass(a.Name)); r.claims() != 1 {
		t.Errorf("the claim was read %d times", r.claims())
	}
	c, m, a = promoted(t)
	c.elsewhere()
	r = m.reading()
	if c.must(m.pass(a.Name)); r.claims() != 1 {
		t.Errorf("for one that stands ready it was read %d times", r.claims())
	}
}

// TestServiceWithoutSocketShowsNothing: a device is not shown by a service that has no socket, and the message says
// which.
func TestServiceWithoutSocketShowsNothing(t *testing.T) {
	c, m, a := attached(t)
	c.elsewhere()
	m.settle(a.Name)
	c.grant(c.get(a.Name), 3)
	m.unlink()
	m.vendor.rpc = m.rpc
	err := m.pass(a.Name)
	if now := c.get(a.Name); !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(now.Status.Message, "SNAP service nvidia on DPU dpu-1, which is to show device dev_v1-pvc, has no socket: is its pod running?") {
		t.Errorf("%v, it says %q", err, now.Status.Message)
	}
}

// TestPluginKnowsWhatSNAPHasLost: a vendor that answers that the device is there, while SNAP has it no more, makes it
// anew, opens it, and it is shown in the same pass. If either fails, so does the pass, and nothing is shown.
func TestPluginKnowsWhatSNAPHasLost(t *testing.T) {
	for _, verb := range []string{"", "CreateDevice", "OpenAtEpoch"} {
		t.Run("fails "+verb, func(t *testing.T) {
			c, m, a := epochal(t, corev1.ReadWriteOnce)
			c.grant(a, 3)
			c.fenced(a.Name, 3)
			m.settle(a.Name)
			m.vendor.hang = func(context.Context) error { return nil } // it knows the device
			m.emu.Restart()
			m.vendor.onOpen = func() error { return nil }
			c.must(m.pass(a.Name)) // puts the incarnation on record
			opens := 0
			m.vendor.onOpen = func() error {
				if opens++; opens == 1 {
					return nil // before SNAP is asked, of the device of before
				}
				if verb == "OpenAtEpoch" {
					return fmt.Errorf("%w: %w", errCrash, provisioner.ErrUnavailable)
				}
				return nil
			}
			if verb == "CreateDevice" {
				m.vendor.fail[verb] = fmt.Errorf("%w: %w", errCrash, provisioner.ErrUnavailable)
			}
			err := m.pass(a.Name)
			if shown := m.shown()["dev_v1-pvc"].Visible; shown != (verb == "") || errors.Is(err, errCrash) != (verb != "") {
				t.Errorf("shown %v, %v", shown, err)
			}
			if now := c.get(a.Name).Status.DPU; now.Attached != (verb == "") {
				t.Errorf("it says %+v", now)
			}
		})
	}
}

// TestServiceChanges: a device that another service shows is shown by that of its vendor only after the other one has
// let go of it, and what it had sent is drained. Nothing of before is left on record.
func TestServiceChanges(t *testing.T) {
	c, m, a := attached(t)
	socket := filepath.Join(m.dir, "s", "other", "snap.sock")
	c.must(os.MkdirAll(filepath.Dir(socket), 0o755))
	other := snapemulatortest.Start(t, snapemulator.Options{Name: "dpu-1", Socket: socket, NewUUID: uuid.NewString})
	epoch := int64(1)
	was := m.exposures.Incarnation("other")
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) {
		d.Provider, d.Incarnation, d.KeptEpoch = "other", was, &epoch
	}))
	other.Restart() // so that it has ended
	fault := map[string]any{"method": "nvme_subsystem_list", "count": -1, "error": map[string]any{"code": -5, "message": "no"}}
	c.must(other.Client.Call(t.Context(), "moor_inject", fault, nil))
	if err := m.pass(a.Name); err == nil || !strings.Contains(err.Error(), "device dev_v1-pvc is of SNAP service nvidia now and was of other, which has to let go of it") {
		t.Errorf("it says %v", err)
	}
	if on := c.get(a.Name).Status.DPU; on.Provider != "other" {
		t.Errorf("on record is %+v", on)
	}
	c.must(other.Client.Call(t.Context(), "moor_clear", nil, nil))
	heard := m.listen()
	c.must(m.pass(a.Name))
	if got := heard.since(); !slices.Contains(got, "withdraw dev_v1-pvc") {
		t.Errorf("SNAP was told %q", got)
	}
	on := c.get(a.Name).Status.DPU
	if on.Provider != "nvidia" || on.Incarnation != m.exposures.Incarnation("nvidia") || on.Attached || on.KeptEpoch != nil || on.Undrained != was {
		t.Errorf("on record is %+v, the other was %q", on, was)
	}
	if now := m.settle(a.Name); !now.Status.DPU.Attached || !m.shown()["dev_v1-pvc"].Visible {
		t.Errorf("got %+v", now.Status)
	}
}

// TestIncarnationIsRecordedQuietly: a device whose service is on record without an incarnation stays shown while that
// is written.
func TestIncarnationIsRecordedQuietly(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Incarnation = "" }))
	heard := m.listen()
	if now := m.settle(a.Name); !now.Status.DPU.Attached || now.Status.DPU.Incarnation == "" || len(heard.since()) != 0 {
		t.Errorf("got %+v", now.Status)
	}
}

// counting is a service that does not show, and counts its functions, or cannot.
type counting struct {
	provisioner.DPU
	err error
}

func (c counting) Functions(context.Context) ([]provisioner.FunctionCount, error) {
	return []provisioner.FunctionCount{{Type: provisioner.VF, Total: 1}}, c.err
}

// TestExhaustedIsKnown: that functions have run out, so that the volume is placed elsewhere, is said only of a
// failure for want of one, if SNAP counts none, and if no attachment that goes has one.
func TestExhaustedIsKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		failure, counts error
		unlisted        bool
		want            bool
	}{
		"none is left":              {failure: provisioner.ErrExhausted, want: true},
		"another failure":           {failure: provisioner.ErrUnavailable},
		"SNAP does not count":       {failure: provisioner.ErrExhausted, counts: errCrash},
		"the cache does not answer": {failure: provisioner.ErrExhausted, unlisted: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			m.watched = func(d provisioner.DPU) provisioner.DPU { return counting{d, tc.counts} }
			m.restartDriver()
			c.volume("v1", corev1.ReadWriteOnce)
			p := c.passOver(c.attachment("v1", "dpu-1").Name)
			p.plugin = &devices.Plugin{Service: "nvidia"}
			if tc.unlisted {
				m.o.Attachments.DPU.Client = unlisted{c.driver()}
			}
			if got := m.shower.exhausted(t.Context(), p, tc.failure); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
