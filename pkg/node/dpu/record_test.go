package dpu

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// second starts another SNAP service on the DPU, which shows nothing.
func (m *machine) second() {
	m.t.Helper()
	socket := filepath.Join(m.dir, "s", "other", "snap.sock")
	m.c.must(os.MkdirAll(filepath.Dir(socket), 0o755))
	snapemulatortest.Start(m.t, snapemulator.Options{Name: m.node, Socket: socket, NewUUID: uuid.NewString})
}

// unlink takes the socket of the first service away, which goes on; the returned
// function puts it back.
func (m *machine) unlink() (link func()) {
	m.t.Helper()
	away := filepath.Join(m.dir, "away")
	m.c.must(os.Rename(m.socket, away))
	m.rpc = snaprpc.New(away, 2*time.Second)
	return func() {
		m.c.must(os.Rename(away, m.socket))
		m.rpc = m.emu.Client
	}
}

// TestServiceWithoutSocketIsAsked: a driver that starts while the service which
// shows the device has no socket gives no receipt on the word of another service,
// and says for which one it waits.
func TestServiceWithoutSocketIsAsked(t *testing.T) {
	for name, take := range map[string]func(*cluster, *storagev1alpha1.VolumeAttachment){
		"detach": func(c *cluster, a *storagev1alpha1.VolumeAttachment) { c.must(c.Delete(t.Context(), a)) },
		"fence":  func(c *cluster, a *storagev1alpha1.VolumeAttachment) { c.fence(a.Name, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := attached(t)
			if a.Status.DPU.Provider != "nvidia" || a.Status.DPU.Incarnation == "" {
				t.Fatalf("not on record: %+v", a.Status.DPU)
			}
			m.second()
			link := m.unlink()
			m.restartDriver()
			take(c, a)
			err := m.pass(a.Name)
			now := c.get(a.Name)
			if err == nil || now == nil || now.Status.DPU.RetiredEpoch != 0 || len(now.Finalizers) == 0 {
				t.Fatalf("a receipt while the host sees %v: %v, %+v", m.shown(), err, now)
			}
			if !strings.Contains(now.Status.Message, "SNAP service nvidia") {
				t.Errorf("does not say for which service it waits: %q", now.Status.Message)
			}
			if !m.shown()["dev_v1-pvc"].Visible {
				t.Fatal("the test proves nothing: the host does not see the device")
			}
			link()
			_ = m.pass(a.Name)
			if len(m.shown()) != 0 {
				t.Errorf("still shown: %v", m.shown())
			}
			if now := c.get(a.Name); now != nil && now.Status.DPU.RetiredEpoch != 1 {
				t.Errorf("no receipt: %+v", now.Status)
			}
		})
	}
}

// TestServiceEndedWithTheMachine: a service that showed the device before the DPU
// booted anew is not waited for, as nothing of it can be left.
func TestServiceEndedWithTheMachine(t *testing.T) {
	c, m, a := attached(t)
	m.second()
	m.unlink()
	m.boot = "second"
	m.restartDriver()
	c.fence(a.Name, 1)
	c.must(m.pass(a.Name))
	m.clock.Step(drainTime)
	c.must(m.pass(a.Name))
	if now := c.get(a.Name).Status; now.DPU.RetiredEpoch != 1 || now.DPU.Incarnation != "" {
		t.Fatalf("no receipt: %+v", now)
	}
}

// TestLeaseAsksTheServiceOnRecord: nothing is shown only if the service on record
// says so, too.
func TestLeaseAsksTheServiceOnRecord(t *testing.T) {
	_, m, _ := attached(t)
	m.second()
	link := m.unlink()
	m.restartDriver()
	if shows, err := m.exposures.ShowsSingleWriter(t.Context()); !shows || err == nil || !strings.Contains(err.Error(), "nvidia") {
		t.Fatalf("shows %v, %v", shows, err)
	}
	link()
	if shows, err := m.exposures.ShowsSingleWriter(t.Context()); !shows || err != nil {
		t.Fatalf("shows %v, %v", shows, err)
	}
}

// TestServiceOnRecordFirst: the service is on record before SNAP is told to show.
func TestServiceOnRecordFirst(t *testing.T) {
	c, m, a := attached(t)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Provider, d.Incarnation = "", "" }))
	m.emu.Restart()
	m.watched = func(d provisioner.DPU) provisioner.DPU {
		return &exposing{DPU: d, before: func() {
			if on := c.get(a.Name).Status.DPU; on.Provider != "nvidia" || on.Incarnation == "" {
				t.Errorf("about to be shown, and on record is %+v", on)
			}
		}}
	}
	m.restartDriver()
	m.settle(a.Name)
	if !m.shown()["dev_v1-pvc"].Visible {
		t.Fatal("not shown again")
	}
}

// TestRecordIsOfTheServer: a device is not shown by a service that is on record in
// the cache alone.
func TestRecordIsOfTheServer(t *testing.T) {
	c, m, a := attached(t)
	stale := c.get(a.Name)
	c.must(c.setDPU(a.Name, func(d *storagev1alpha1.VolumeAttachmentDPU) { d.Provider = "other" }))
	if err := m.right.confirm(t.Context(), newPass(stale)); !waits(err) {
		t.Fatalf("confirmed: %v", err)
	}
}

// TestIncarnation: it is the same over restarts of the driver, and another one
// after a restart of SNAP.
func TestIncarnation(t *testing.T) {
	c, m, a := attached(t)
	m.restartDriver()
	if again := m.settle(a.Name).Status.DPU; again.Incarnation != a.Status.DPU.Incarnation {
		t.Fatalf("another one after a restart of the driver: %s, %s", a.Status.DPU.Incarnation, again.Incarnation)
	}
	m.emu.Restart()
	now := m.settle(a.Name).Status.DPU
	if now.Incarnation == a.Status.DPU.Incarnation || now.Incarnation == "" {
		t.Fatalf("%q after a restart of SNAP", now.Incarnation)
	}
	now.Incarnation, now.Undrained = a.Status.DPU.Incarnation, ""
	m.clock.Step(drainTime)
	if diff := cmp.Diff(a.Status.DPU, now); diff != "" {
		t.Error(diff)
	}
	c.must(c.Delete(t.Context(), c.get(a.Name)))
	m.settle(a.Name)
	if shown, err := snap.New(m.rpc, snap.Options{}).List(t.Context()); err != nil || len(shown) != 0 {
		t.Error(shown, err)
	}
}

// exposing is a service that tells when it is about to be told to show.
type exposing struct {
	provisioner.DPU
	before func()
}

func (e *exposing) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	e.before()
	return e.DPU.Expose(ctx, spec)
}

// setDPU changes what is on record of the DPU.
func (c *cluster) setDPU(name string, change func(*storagev1alpha1.VolumeAttachmentDPU)) error {
	a := c.get(name)
	change(&a.Status.DPU)
	return c.Status().Update(c.t.Context(), a)
}
