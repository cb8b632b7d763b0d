package dpu

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// staleRetry is when an attachment of which the cache is behind is looked at
// again if the watch brings nothing by then.
const staleRetry = time.Second

// pass is what one pass over one attachment knows.
type pass struct {
	attachment *storagev1alpha1.VolumeAttachment
	// deleting: the pass takes the device away, as the attachment was being deleted
	// when it began.
	deleting bool
	// volume is nil if it is not known.
	volume *storagev1alpha1.Volume
	// volumeID is what the vendor's plugin calls the volume; "" if the attachment
	// names no volume.
	volumeID string
	// plugin is the volume's, once it was found.
	plugin *devices.Plugin
	// writerClaim is the volume's as this pass has read it; nil if there is none.
	// claimRead: it was read.
	writerClaim *moorv1alpha1.WriterClaim
	claimRead   bool
	// forgotten is an epoch that the fence of this pass ended and that the attachment did not
	// know of; 0 if there is none.
	forgotten int64
	// refused says why the volume may not be shown here; "" if it may.
	refused string
	// term is that of the lease under which the claim was read.
	term int64

	// dpu is the status to write.
	dpu storagev1alpha1.VolumeAttachmentDPU
	// undrained are the incarnations of SNAP services that ended while they may have
	// shown the volume here, or whose way to the storage was lost meanwhile.
	undrained []string
}

func newPass(attachment *storagev1alpha1.VolumeAttachment) *pass {
	p := &pass{attachment: attachment, deleting: !attachment.DeletionTimestamp.IsZero(), dpu: *attachment.Status.DPU.DeepCopy()}
	p.dpu.Exhausted = false // each pass finds out anew
	if p.dpu.Undrained != "" {
		p.undrained = []string{p.dpu.Undrained}
	}
	if volume := p.volumeName(); volume != "" {
		p.volumeID = attachments.VolumeID(volume)
	}
	return p
}

// volumeName is the name of the attachment's Volume, "" if it names none.
func (p *pass) volumeName() string { return p.attachment.VolumeName() }

// replica reports whether the attachment only keeps the volume ready here.
func (p *pass) replica() bool { return p.attachment.IsReplica() }

// shown reports whether the host sees the device under the epoch of the attachment, as
// far as is known.
func (p *pass) shown() bool { return p.dpu.Attached && p.dpu.Epoch == p.attachment.Spec.Epoch }

// keepsReady reports whether the device is made ready without being shown.
func (p *pass) keepsReady() bool { return p.refused != "" && p.replica() }

// wait ends the pass, with a message that says what for. Most attachments are
// ready soon, so the status tells of a wait once the attachment is older than
// kube.StatusGrace. retry is when to look again where no watch tells; 0: never.
func (p *pass) wait(retry time.Duration, format string, args ...any) error {
	return &kube.Waiting{
		Message: fmt.Sprintf(format, args...), Since: p.attachment.CreationTimestamp.Time, RetryAfter: retry,
	}
}

// waitForRight is wait with what refused the right to show the volume.
func (p *pass) waitForRight() error { return p.wait(0, "%s", p.refused) }

// outdated ends a pass whose attachment is not what the cache shows. The change
// is on its way and brings the next pass, so the message stays as it is.
func (p *pass) outdated() error { return p.wait(staleRetry, "%s", p.attachment.Status.Message) }

// withdrawn notes that the host does not see the device, and that nothing of it
// stands ready. What identifies it is kept, so that it comes back the same.
func (p *pass) withdrawn() {
	p.dpu.Attached, p.dpu.PreEmulated, p.dpu.Epoch = false, false, 0
}

// onRecord reports whether the service is on record as the one that shows the
// device, so that a withdrawal asks it whatever else happens.
func (p *pass) onRecord(service string) bool {
	return p.dpu.Provider == service && p.dpu.Incarnation != ""
}

// unknown is the incarnation of a device that a driver has shown which did not record
// one.
const unknown = "unknown"

// ended notes what the end of an exposure that is on record leaves behind: what it had sent
// and may still be on its way, as Exposures.During names it; "" if nothing is.
func (p *pass) ended(on *storagev1alpha1.VolumeAttachmentDPU, undrained string) {
	switch {
	case on.DeviceName != "" && on.Provider == "":
		p.undrained = append(p.undrained, unknown)
	case undrained != "":
		p.undrained = append(p.undrained, undrained)
	}
	if on.Undrained != "" {
		p.undrained = append(p.undrained, on.Undrained)
	}
}

// kept notes that the function of the device may keep requests of the host, if now is another
// incarnation of the service than the one on record, by which the host has seen the device. They
// are all of the epoch on record: an exposure under another one begins with discarding.
func (p *pass) kept(now string) {
	seen := p.dpu.Attached || p.dpu.PreEmulated
	if seen && p.dpu.BdevAttrs != nil && p.dpu.Incarnation != "" && now != "" && now != p.dpu.Incarnation {
		p.dpu.KeptEpoch = ptr.To(p.dpu.Epoch)
	}
}

// leftBy is what the incarnation on record leaves behind, if now is the service's: nothing
// if it is the same.
func (p *pass) leftBy(now string) string {
	if p.dpu.Incarnation == now {
		return ""
	}
	return p.dpu.Incarnation
}

// unrecorded notes that it is not on record which incarnation has shown the volume: the
// attachment by which it was shown may be lost, and that service may have ended since. So
// what it had sent may be on its way.
func (p *pass) unrecorded() {
	if p.attachment.Status.DPU.Incarnation == "" {
		p.undrained = append(p.undrained, unknown)
	}
}

// drain returns how long it takes until nothing of what has ended is on its way to the
// storage, and notes what is not drained. A volume with several writers waits for
// nothing: it has no epoch.
func (p *pass) drain(shown *exposures.Exposures) time.Duration {
	var longest time.Duration
	p.dpu.Undrained = ""
	if !writer.SingleWriter(p.attachment, p.volume) {
		return 0
	}
	for _, of := range p.undrained {
		if left := shown.Undrained(string(p.attachment.UID), of); left > longest {
			longest, p.dpu.Undrained = left, of
		}
	}
	return longest
}

// drained ends the pass while something may be on its way to the storage: the epoch is
// not retired before.
func (p *pass) drained(shown *exposures.Exposures) error {
	left := p.drain(shown)
	if left <= 0 {
		return nil
	}
	return &kube.Waiting{RetryAfter: left, Message: fmt.Sprintf(
		"volume %s is withdrawn from the host, but SNAP service %s had ended, or lost its way to the storage, while it may have shown it: what it had sent may reach the storage for up to %s yet (--lease-drain), and the epoch is retired after that",
		p.volumeName(), p.dpu.Provider, shown.Drain())}
}

// observe notes what the host sees, or what stands ready for it.
func (p *pass) observe(e provisioner.Exposure) {
	p.withdrawn()
	p.dpu.Attached, p.dpu.PreEmulated = e.Visible, e.Hidden
	if e.Visible || e.Hidden {
		p.dpu.KeptEpoch = nil // it is served, or discarded
	}
	if e.Visible {
		p.dpu.Epoch = p.attachment.Spec.Epoch
	}
	p.dpu.PCIDeviceAddress, p.dpu.FuncVUID = e.PCIAddress, e.VUID
	if e.Tag != "" {
		p.dpu.BdevAttrs, p.dpu.FsdevAttrs = nil, &storagev1alpha1.FsdevAttrs{FilesystemTag: e.Tag}
		return
	}
	p.dpu.FsdevAttrs = nil
	p.dpu.BdevAttrs = &storagev1alpha1.BdevAttrs{NVMeNsID: e.NamespaceID, NVMeUUID: e.UUID}
}
