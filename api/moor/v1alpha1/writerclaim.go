package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ClaimPhase is where the right to write is.
// +kubebuilder:validation:Enum=Free;Granted;Fencing;Lost
type ClaimPhase string

// The phases of a WriterClaim.
const (
	// ClaimFree: no DPU may write; the next grant gets epoch+1.
	ClaimFree ClaimPhase = "Free"
	// ClaimGranted: Holder may write under Epoch.
	ClaimGranted ClaimPhase = "Granted"
	// ClaimFencing: Holder's right is being taken back; no other DPU may
	// write until a receipt shows that Holder cannot.
	ClaimFencing ClaimPhase = "Fencing"
	// ClaimLost: the claim was deleted and made anew, or restored, and others
	// know of epochs that it does not. Nothing is granted before each of
	// status.lost is proven to be over.
	ClaimLost ClaimPhase = "Lost"
)

// ReceiptKind says who proved that the old holder can no longer write.
// +kubebuilder:validation:Enum=Medium;DPU;Storage;Power;LeaseBound;Operator
type ReceiptKind string

// The kinds of receipt, strongest first.
const (
	// ReceiptMedium: the storage itself accepts nothing of the epoch any more.
	ReceiptMedium ReceiptKind = "Medium"
	// ReceiptDPU: the old DPU detached the namespace and ended its I/O.
	ReceiptDPU ReceiptKind = "DPU"
	// ReceiptStorage: the storage revoked the old DPU.
	ReceiptStorage ReceiptKind = "Storage"
	// ReceiptPower: the BMC of the DPU, or of the host that the DPU has its power from, was
	// asked to reset it, or to switch it off, and was seen to have done so.
	ReceiptPower ReceiptKind = "Power"
	// ReceiptLeaseBound: the bound of the lease of a DPU that gives one passed.
	ReceiptLeaseBound ReceiptKind = "LeaseBound"
	// ReceiptOperator: a person vouches for it.
	ReceiptOperator ReceiptKind = "Operator"
)

// Receipt is the proof that a holder's epoch is over.
type Receipt struct {
	// Kind says who proved it.
	Kind ReceiptKind `json:"kind"`
	// Holder whose right ended.
	Holder string `json:"holder"`
	// AttachmentUID is that of the VolumeAttachment that the epoch was granted to; "" if the
	// grant did not name one.
	// +optional
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`
	// Epoch that ended.
	Epoch int64 `json:"epoch"`
	// Time when it was recorded; for people, no decision uses it.
	// +optional
	Time metav1.Time `json:"time,omitempty"`
	// Message is for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// WriterClaimSpec names the volume.
type WriterClaimSpec struct {
	// VolumeName is a single-writer Volume in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="volumeName is immutable"
	VolumeName string `json:"volumeName"`
	// AfterEpoch is the epoch of the last grant that the host cluster knew of when the
	// claim was made; 0 if there was none. A claim that is made anew says by it, from its
	// first moment, that it has lost its record up to there.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="afterEpoch is immutable"
	// +optional
	AfterEpoch int64 `json:"afterEpoch,omitempty"`
	// OperatorReceipt is a person's word that the holder can no longer
	// write. It counts only for the epoch, the holder and the attachment that
	// it names, for 15 minutes from its time, and not while that DPU can
	// answer for itself.
	// +optional
	OperatorReceipt *OperatorReceipt `json:"operatorReceipt,omitempty"`
}

// OperatorReceipt is a person's word that a holder can no longer write.
type OperatorReceipt struct {
	// Epoch that is over.
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`
	// Holder is the DPU that can no longer write. Without it the word does
	// not count.
	// +optional
	Holder string `json:"holder,omitempty"`
	// AttachmentUID is that of status, or of the entry of status.lost.
	// Without it the word does not count, unless there is none there.
	// +optional
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`
	// Time at which it is written. Without it the word does not count.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// Operator is the user name of the person, by which the API server knows who writes this:
	// a policy refuses any other.
	// +kubebuilder:validation:MinLength=1
	Operator string `json:"operator"`
	// Reason says how they know.
	// +kubebuilder:validation:MinLength=1
	Reason string `json:"reason"`
}

// WriterClaimStatus is the right to write. Only compare-and-swap changes it.
// Writer: snap-host-controller, which grants, takes back and frees.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.epoch) || (has(self.epoch) && self.epoch >= oldSelf.epoch)",message="epoch never goes back"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.lostEpoch) || (has(self.lostEpoch) && self.lostEpoch >= oldSelf.lostEpoch)",message="lostEpoch never goes back"
// +kubebuilder:validation:XValidation:rule="self.phase == 'Free' || (has(self.holder) && size(self.holder) > 0)",message="a claim that is not Free has a holder"
// +kubebuilder:validation:XValidation:rule="self.phase != 'Granted' || oldSelf.phase == 'Free' || (oldSelf.phase == 'Granted' && self.holder == oldSelf.holder && (has(self.epoch) ? self.epoch : 0) == (has(oldSelf.epoch) ? oldSelf.epoch : 0))",message="the right to write is granted once it is Free: one that is held ends first"
// +kubebuilder:validation:XValidation:rule="self.phase == 'Free' || !has(self.epoch) || !has(oldSelf.epoch) || self.epoch != oldSelf.epoch || !has(self.attachmentUID) || !has(oldSelf.attachmentUID) || size(oldSelf.attachmentUID) == 0 || self.attachmentUID == oldSelf.attachmentUID",message="within an epoch the right to write stays with the attachment that it was granted to"
type WriterClaimStatus struct {
	// Phase: Free, Granted, Fencing or Lost.
	// +kubebuilder:default=Free
	Phase ClaimPhase `json:"phase"`
	// Holder is the DPU's node name. While the phase is Lost it is the first of
	// status.lost, which is woken by that.
	// +optional
	Holder string `json:"holder,omitempty"`
	// Attachment is the VolumeAttachment for which it was granted.
	// +optional
	Attachment string `json:"attachment,omitempty"`
	// AttachmentUID is the UID of that VolumeAttachment: another one that was
	// made by its name has no right, and what is missing on it proves
	// nothing. A claim that was granted before this field existed has none:
	// the name decides, until the DPU's finalizer is seen on the attachment.
	// +optional
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`
	// Epoch of the last grant, from 1; it only grows.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// Lost are those who may still write by what others know, while the phase
	// is Lost.
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Lost []LostHolder `json:"lost,omitempty"`
	// LostEpoch is the highest epoch that was known when the claim had lost its
	// record, also of Revoked: any DPU may still show the volume under an epoch up to
	// this one, and is let into the storage again when it has cleared up, as one of
	// Revoked is. 0: nothing was ever lost.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LostEpoch int64 `json:"lostEpoch,omitempty"`
	// Receipts of the last fence, newest last.
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Receipts []Receipt `json:"receipts,omitempty"`
	// Revoked are the DPUs whose epoch ended by the word of another: of the
	// storage, or of an operator; or that fell silent after they had ended it
	// and before they let go. Such a DPU may still show the volume, so
	// the storage is not opened to it again before it says that it has
	// cleared up: by a status.dpu.retiredEpoch of its VolumeAttachment that
	// is at least this epoch.
	// +kubebuilder:validation:MaxItems=10000
	// +listType=map
	// +listMapKey=dpu
	// +optional
	Revoked []Revoked `json:"revoked,omitempty"`
}

// LostHolder is an attachment for which the right to write was granted, of which the
// claim had no record.
type LostHolder struct {
	// DPU is its node name.
	DPU string `json:"dpu"`
	// Attachment is the VolumeAttachment.
	Attachment string `json:"attachment"`
	// AttachmentUID is its UID; none if only the host cluster knows of it.
	// +optional
	AttachmentUID types.UID `json:"attachmentUID,omitempty"`
	// Epoch is the highest one that is known of it.
	Epoch int64 `json:"epoch"`
}

// Revoked is the end of an epoch that its DPU did not confirm.
type Revoked struct {
	// DPU is its node name.
	DPU string `json:"dpu"`
	// Epoch is the last one that ended so.
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`
}

// RevokedEpoch is the last epoch of a DPU that ended by the word of another; 0
// if none did.
func (s *WriterClaimStatus) RevokedEpoch(dpu string) int64 {
	if s == nil {
		return 0
	}
	for _, r := range s.Revoked {
		if r.DPU == dpu {
			return r.Epoch
		}
	}
	return 0
}

// WriterClaim is the right to write to one single-writer volume.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor,shortName=wc
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status never goes away: it holds the epochs that were"
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:selectablefield:JSONPath=`.status.holder`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volumeName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.status.holder`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.epoch`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WriterClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WriterClaimSpec `json:"spec,omitempty"`
	// +optional
	Status *WriterClaimStatus `json:"status,omitempty"`
}

// WriterClaimList is a list of WriterClaims.
// +kubebuilder:object:root=true
type WriterClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WriterClaim `json:"items"`
}
