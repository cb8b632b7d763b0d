package dpu

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// staleCache has one attachment as it was, and no other.
type staleCache struct {
	client.Client
	was *storagev1alpha1.VolumeAttachment
}

func (s staleCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if a, ok := o.(*storagev1alpha1.VolumeAttachment); ok {
		s.was.DeepCopyInto(a)
		return nil
	}
	return s.Client.Get(ctx, key, o, options...)
}

func (s staleCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if l, ok := list.(*storagev1alpha1.VolumeAttachmentList); ok {
		l.Items = []storagev1alpha1.VolumeAttachment{*s.was.DeepCopy()}
		return nil
	}
	return s.Client.List(ctx, list, options...)
}

// remembers lets the driver's cache have the attachment as it was, alone.
func (m *machine) remembers(was *storagev1alpha1.VolumeAttachment) {
	m.o.Attachments.DPU.Client = staleCache{m.c.driver(), was}
}

// TestReceiptOfACacheThatIsBehind: neither the attachment nor the list of them
// tells of the device that is shown. The API server does.
func TestReceiptOfACacheThatIsBehind(t *testing.T) {
	c, m, a := attached(t)
	was := c.get(a.Name)
	was.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{}
	c.fence(a.Name, 1)
	m.remembers(was)
	c.must(m.pass(a.Name))
	if now := c.get(a.Name).Status.DPU; now.RetiredEpoch != 1 || len(m.shown()) != 0 {
		t.Fatalf("a receipt, and the device is shown: %+v, %+v", now, m.shown())
	}
}

// TestShowsNothingForAnAttachmentThatWasReplaced: the right was given to the one
// that is gone.
func TestShowsNothingForAnAttachmentThatWasReplaced(t *testing.T) {
	c, m, a := ready(t)
	c.role(a.Name, storagev1alpha1.RolePrimary)
	c.grant(a, 1)
	was := c.get(a.Name)
	was.UID = "gone"
	m.remembers(was)
	if err := m.pass(a.Name); err != nil && !apierrors.IsConflict(err) { // its status is another's
		t.Fatal(err)
	}
	if m.shown()["dev_v1-pvc"].Visible {
		t.Fatal("shown for an attachment that is gone")
	}
	m.remembers(c.get(a.Name))
	c.must(m.pass(a.Name))
	if !m.shown()["dev_v1-pvc"].Visible {
		t.Fatal("not shown for the one that is there")
	}
}

// TestGrantedDeviceIsNotLeftToAnother: two attachments of one volume on one DPU.
// What was shown by the right of the one goes with it.
func TestGrantedDeviceIsNotLeftToAnother(t *testing.T) {
	c, m, a := attached(t)
	other := c.get(a.Name)
	other.Name, other.ResourceVersion = "an-earlier-name", ""
	status := other.Status
	c.must(c.Create(t.Context(), other))
	other.Status = status
	c.must(c.Status().Update(t.Context(), other))
	if first, err := m.o.Attachments.Preceding(t.Context(), c.get(a.Name)); err != nil || first == nil {
		t.Fatalf("the other one does not go first, this tests nothing: %v", err)
	}
	c.must(c.Delete(t.Context(), a))
	if err := m.pass(a.Name); err != nil {
		t.Fatal(err)
	}
	if m.shown()["dev_v1-pvc"].Visible {
		t.Fatal("the attachment has gone, and its device is shown")
	}
}

// TestNotShownOnceTheStorageTookItBack: the right to write is there, the device
// stands ready, and the storage does not accept this DPU any more.
func TestNotShownOnceTheStorageTookItBack(t *testing.T) {
	c, m, a := ready(t)
	c.role(a.Name, storagev1alpha1.RolePrimary)
	c.grant(a, 1)
	now := c.get(a.Name)
	now.Status.StorageAttached = false
	c.must(c.Status().Update(t.Context(), now))
	now = m.settle(a.Name)
	if now.Status.DPU.Attached || m.shown()["dev_v1-pvc"].Visible || !strings.Contains(now.Status.Message, "no longer lets DPU dpu-1 use volume v1") {
		t.Fatalf("got %+v, %+v", now.Status, m.shown())
	}
}

// TestServiceThatLostItsSocketIsAsked: it was used, so it may still show the
// device, and another one that answers knows nothing of that.
func TestServiceThatLostItsSocketIsAsked(t *testing.T) {
	c, m, a := attached(t)
	other := filepath.Join(m.dir, "s", "other", "snap.sock")
	c.must(os.MkdirAll(filepath.Dir(other), 0o755))
	snapemulatortest.Start(t, snapemulator.Options{
		Name: "other", Socket: other, NewUUID: uuid.NewString,
		Hotplug: snapemulator.Hotplug{Slots: 31, StateFile: filepath.Join(m.dir, "other.json")},
	})
	c.fence(a.Name, 1)
	c.must(os.Rename(m.socket, m.socket+".away"))
	if err := m.pass(a.Name); err == nil || c.get(a.Name).Status.DPU.RetiredEpoch != 0 {
		t.Errorf("a receipt without the service that shows the device: %v, %+v", err, c.get(a.Name).Status.DPU)
	}
	c.must(os.Rename(m.socket+".away", m.socket))
	c.must(m.pass(a.Name))
	if now := c.get(a.Name).Status.DPU; now.RetiredEpoch != 1 || len(m.shown()) != 0 {
		t.Errorf("after it answers again: %+v, %+v", now, m.shown())
	}
}
