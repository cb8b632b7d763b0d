package dpu

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// keeping is attached on a machine whose functions outlive SNAP.
func keeping(t *testing.T) (*cluster, *machine, *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	c := newCluster(t)
	m := newMachineOf(t, c, "dpu-1", snapemulatortest.StartKeeping)
	c.volume("v1", corev1.ReadWriteOnce)
	c.grant(c.attachment("v1", "dpu-1"), 1)
	a := m.settle("dpu-1-v1")
	if !a.Status.DPU.Attached || m.emu.Host.Sees() != 1 {
		t.Fatalf("not attached: %+v", a.Status)
	}
	return c, m, a
}

// ends waits for the end of a write.
func ends(t *testing.T, write <-chan error) error {
	t.Helper()
	select {
	case err := <-write:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the write has not ended")
		return nil
	}
}

// wantWaiting fails if a write has ended already.
func wantWaiting(t *testing.T, write <-chan error) {
	t.Helper()
	select {
	case err := <-write:
		t.Fatalf("the write has ended: %v", err)
	default:
	}
}

// written counts what has reached the device since SNAP was started.
func (m *machine) written() uint64 {
	m.t.Helper()
	all, err := m.rpc.BdevGetIostat(m.t.Context(), "")
	m.c.must(err)
	var n uint64
	for _, b := range all {
		n += b.WriteOps
	}
	return n
}

// passes makes passes until one fails for good, as they would be made.
func (m *machine) passes(name string) {
	m.t.Helper()
	for range 6 {
		_ = m.pass(name)
	}
}

// TestRecovery: what the host has asked for while SNAP was away is done by the next
// incarnation, once the driver has made the controller anew; the host has seen its device all the time.
func TestRecovery(t *testing.T) {
	_, m, a := keeping(t)
	m.emu.Restart()
	write := m.emu.Host.Write("late")
	now := m.settle(a.Name)
	if err := ends(t, write); err != nil {
		t.Fatalf("the host has seen %v", err)
	}
	if !now.Status.DPU.Attached || now.Status.DPU.KeptEpoch != nil || now.Status.DPU.PCIDeviceAddress != a.Status.DPU.PCIDeviceAddress || m.written() != 1 {
		t.Fatalf("status %+v, %d writes", now.Status.DPU, m.written())
	}
}

// TestRecoveryIsOnRecordFirst: that the function may keep something is written before a
// controller is made there, and survives the driver.
func TestRecoveryIsOnRecordFirst(t *testing.T) {
	c, m, a := keeping(t)
	m.emu.Restart()
	write := m.emu.Host.Write("late")
	_ = m.pass(a.Name)
	on := c.get(a.Name).Status.DPU
	if on.KeptEpoch == nil || *on.KeptEpoch != 1 || on.Incarnation == a.Status.DPU.Incarnation || m.calls("nvme_controller_create") != 0 {
		t.Fatalf("after the first pass: %+v, %d controllers made", on, m.calls("nvme_controller_create"))
	}
	wantWaiting(t, write)
	m.restartDriver()
	m.settle(a.Name)
	if err := ends(t, write); err != nil {
		t.Fatal(err)
	}
}

// TestRecoveryOfWhatIsOver: each of these ends the right before the driver gets to the controller.
// No write that waits reaches the device, the host's I/O ends, and the receipt comes after that.
func TestRecoveryOfWhatIsOver(t *testing.T) {
	for name, end := range map[string]func(*cluster, *machine, *storagev1alpha1.VolumeAttachment){
		"fenced":  func(c *cluster, _ *machine, a *storagev1alpha1.VolumeAttachment) { c.fence(a.Name, 1) },
		"deleted": func(c *cluster, _ *machine, a *storagev1alpha1.VolumeAttachment) { c.must(c.Delete(t.Context(), a)) },
		"granted to another DPU": func(c *cluster, _ *machine, _ *storagev1alpha1.VolumeAttachment) {
			c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-2", Attachment: "dpu-2-v1", AttachmentUID: "other", Epoch: 2})
		},
		"granted to another attachment of the name": func(c *cluster, _ *machine, a *storagev1alpha1.VolumeAttachment) {
			c.claim("v1", &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-1", Attachment: a.Name, AttachmentUID: "other", Epoch: 1})
		},
		"retired by the journal": func(c *cluster, m *machine, _ *storagev1alpha1.VolumeAttachment) {
			c.must(m.o.Journal.Retire("uid-of-v1", "v1", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := keeping(t)
			m.emu.Restart()
			write := m.emu.Host.Write("of an epoch that is over")
			end(c, m, a)
			m.passes(a.Name)
			if err := ends(t, write); err == nil || m.written() != 0 || m.emu.Host.Sees() != 0 {
				t.Fatalf("the write ended with %v, %d have reached the device, the host sees %d", err, m.written(), m.emu.Host.Sees())
			}
		})
	}
}

// TestDiscardedIsOffTheRecord: what a function had kept, as the record says, is discarded as the right ends, and is
// not on record any more: it would be discarded again, from a function that is another volume's by then.
func TestDiscardedIsOffTheRecord(t *testing.T) {
	for name, end := range map[string]func(*cluster, *storagev1alpha1.VolumeAttachment){
		"fenced":                 func(c *cluster, a *storagev1alpha1.VolumeAttachment) { c.fence(a.Name, 1) },
		"deleted":                func(c *cluster, a *storagev1alpha1.VolumeAttachment) { c.going(a.Name) },
		"granted to another DPU": func(c *cluster, _ *storagev1alpha1.VolumeAttachment) { c.elsewhere() },
	} {
		t.Run(name, func(t *testing.T) {
			c, m, a := keeping(t)
			m.emu.Restart()
			_ = m.pass(a.Name)
			if c.get(a.Name).Status.DPU.KeptEpoch == nil {
				t.Fatal("nothing is kept, this tests nothing")
			}
			end(c, a)
			_ = m.pass(a.Name)
			if now := c.get(a.Name).Status.DPU; now.KeptEpoch != nil || now.Attached {
				t.Errorf("on record is %+v", now)
			}
		})
	}
}

// TestRecoveryLosesTheRight: the claim is taken while the controller is made anew: it is not
// resumed, but destroyed.
func TestRecoveryLosesTheRight(t *testing.T) {
	c, m, a := keeping(t)
	m.emu.Restart()
	write := m.emu.Host.Write("of an epoch that is over")
	m.watched = func(d provisioner.DPU) provisioner.DPU {
		return losing{d, func() { c.fence(a.Name, 1) }}
	}
	m.restartDriver()
	m.passes(a.Name)
	if err := ends(t, write); err == nil || m.written() != 0 {
		t.Fatalf("the write ended with %v, %d have reached the device", err, m.written())
	}
	if n := m.calls("nvme_controller_resume"); n != 0 {
		t.Fatalf("a controller was resumed %d times", n)
	}
}

// losing loses the right between the making of a controller and its resumption.
type losing struct {
	provisioner.DPU
	lose func()
}

func (l losing) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	if ask := spec.Recover; ask != nil {
		spec.Recover = func(ctx context.Context) error {
			l.lose()
			return ask(ctx)
		}
	}
	return l.DPU.Expose(ctx, spec)
}

// TestRecoveryWaitsForTheAPI: while the API server does not answer nothing is resumed, and
// nothing is lost.
func TestRecoveryWaitsForTheAPI(t *testing.T) {
	c, m, a := keeping(t)
	m.emu.Restart()
	write := m.emu.Host.Write("late")
	m.watched = func(d provisioner.DPU) provisioner.DPU {
		return losing{d, func() { c.onRead = func() error { return errors.New("away") } }}
	}
	m.restartDriver()
	for range 3 {
		_ = m.pass(a.Name)
	}
	wantWaiting(t, write)
	if n := m.calls("nvme_controller_resume"); n != 0 || m.written() != 0 {
		t.Fatalf("resumed %d times, %d writes", n, m.written())
	}
	c.onRead, m.watched = nil, nil
	m.restartDriver()
	m.settle(a.Name)
	if err := ends(t, write); err != nil {
		t.Fatal(err)
	}
}

// removeByForce removes an attachment with all that holds it.
func removeByForce(t *testing.T, c *cluster, a *storagev1alpha1.VolumeAttachment) {
	t.Helper()
	a.Finalizers = nil
	c.must(c.Update(t.Context(), a))
	c.must(c.Delete(t.Context(), a))
}

// TestRecoveryUnderAnotherEpoch: the storage's word has ended the epoch, its attachment is gone by
// force, and the volume is granted anew to the same DPU. What waits is of the old epoch, and the device,
// the namespace and the function are the same.
func TestRecoveryUnderAnotherEpoch(t *testing.T) {
	c, m, a := keeping(t)
	m.emu.Restart()
	write := m.emu.Host.Write("of an epoch that is over")
	removeByForce(t, c, a)
	c.grant(c.attachment("v1", "dpu-1"), 3)
	now := m.settle(a.Name)
	if !now.Status.DPU.Attached || now.Status.DPU.Epoch != 3 || now.Status.DPU.PCIDeviceAddress != a.Status.DPU.PCIDeviceAddress {
		t.Fatalf("not shown anew: %+v", now.Status)
	}
	if err := ends(t, write); err == nil || m.written() != 0 {
		t.Fatalf("the write ended with %v, %d have reached the device", err, m.written())
	}
}

// TestRecoveryOfAnotherVolume: what waits in a function is of a volume whose attachment is gone,
// and the function is given to another volume.
func TestRecoveryOfAnotherVolume(t *testing.T) {
	c, m, a := keeping(t)
	m.emu.Restart()
	write := m.emu.Host.Write("of another volume")
	removeByForce(t, c, a)
	c.volume("v2", corev1.ReadWriteOnce)
	c.grant(c.attachment("v2", "dpu-1"), 1)
	now := m.settle("dpu-1-v2")
	if !now.Status.DPU.Attached || now.Status.DPU.PCIDeviceAddress != a.Status.DPU.PCIDeviceAddress {
		t.Fatalf("not shown at the function of before: %+v", now.Status)
	}
	if err := ends(t, write); err == nil || m.written() != 0 {
		t.Fatalf("the write ended with %v, %d have reached the device", err, m.written())
	}
}

// TestRecoveryTwice: SNAP ends again in the middle of the recovery.
func TestRecoveryTwice(t *testing.T) {
	_, m, a := keeping(t)
	m.emu.Restart()
	write := m.emu.Host.Write("late")
	_ = m.pass(a.Name)
	m.emu.Restart()
	m.settle(a.Name)
	if err := ends(t, write); err != nil || m.written() != 1 {
		t.Fatalf("%v, %d writes", err, m.written())
	}
}

// TestRecoveryWithoutTheJournal: the file is gone, so it does not say that the volume was shown
// here under this epoch last. The volume is shown, without what waits.
func TestRecoveryWithoutTheJournal(t *testing.T) {
	c, m, a := keeping(t)
	m.emu.Restart()
	write := m.emu.Host.Write("of which epoch is not known")
	c.must(os.Remove(m.journal()))
	m.restartDriver()
	now := m.settle(a.Name)
	if err := ends(t, write); err == nil || m.written() != 0 || !now.Status.DPU.Attached {
		t.Fatalf("the write ended with %v, %d have reached the device, %+v", err, m.written(), now.Status)
	}
}
