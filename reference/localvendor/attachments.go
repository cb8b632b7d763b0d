package localvendor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// Attach records that the node has the volume. See provisioner.Attachments.
func (s *Storage) Attach(ctx context.Context, spec provisioner.AttachSpec) (provisioner.Attachment, error) {
	var a provisioner.Attachment
	err := named(spec)
	if err == nil {
		a, err = s.attach(ctx, spec)
	}
	if err != nil {
		return provisioner.Attachment{}, fmt.Errorf("attach volume %q to node %q: %w", spec.VolumeID, spec.Node, err)
	}
	return a, nil
}

// named refuses a request that lacks the name of the volume or of the node.
func named(spec provisioner.AttachSpec) error {
	if spec.VolumeID == "" || spec.Node == "" {
		return fmt.Errorf("volume or node is not named: %w", provisioner.ErrInvalid)
	}
	return nil
}

func (s *Storage) attach(ctx context.Context, spec provisioner.AttachSpec) (provisioner.Attachment, error) {
	unlock, err := s.lock(spec.VolumeID)
	if err != nil {
		return provisioner.Attachment{}, err
	}
	defer unlock()
	have, err := s.attachable(spec)
	if err != nil {
		return provisioner.Attachment{}, err
	}
	done, err := admit(have, spec, s.manyNodes)
	if err != nil {
		return provisioner.Attachment{}, err
	}
	h := records.Holder{ReadOnly: spec.ReadOnly, AccessModes: spec.AccessModes}
	if done {
		h = have.Attachments[spec.Node]
	}
	if !done && s.maxPerNode > 0 {
		s.counting.Lock()
		defer s.counting.Unlock()
		if err := s.roomOn(spec.Node); err != nil {
			return provisioner.Attachment{}, err
		}
	}
	if granted := s.target != nil && have.ByTarget() && s.granted(spec.VolumeID, spec.Node, &h); !done || granted {
		if err := ctx.Err(); err != nil {
			return provisioner.Attachment{}, err
		}
		if err := s.hold(spec, &have, h); err != nil {
			return provisioner.Attachment{}, err
		}
	}
	return s.attachment(spec, have, h), nil
}

// hold records that a node has the volume.
func (s *Storage) hold(spec provisioner.AttachSpec, have *records.Volume, h records.Holder) error {
	if have.Attachments == nil {
		have.Attachments = map[string]records.Holder{}
	}
	have.Attachments[spec.Node] = h
	return s.save(spec.VolumeID, *have)
}

// roomOn refuses a node that has as many volumes as it may.
func (s *Storage) roomOn(node string) error {
	ids, err := records.IDs(s.dir)
	if err != nil {
		return err
	}
	has := 0
	for _, id := range ids {
		// A damaged record is reported where its volume is used.
		if r, _, err := s.load(id); err == nil && len(r.Holders(node)) > 0 && node != "" {
			has++
		}
	}
	if has >= s.maxPerNode {
		return fmt.Errorf("the node has %d volumes and may have %d, detach one there first: %w", has, s.maxPerNode, provisioner.ErrExhausted)
	}
	return nil
}

// attachable returns the record of the volume if it and the node are there.
func (s *Storage) attachable(spec provisioner.AttachSpec) (records.Volume, error) {
	have, found, err := s.load(spec.VolumeID)
	if err != nil {
		return records.Volume{}, err
	}
	if !found {
		return records.Volume{}, fmt.Errorf("the volume does not exist: %w", provisioner.ErrNotFound)
	}
	if !s.nodeExists(spec.Node) {
		return records.Volume{}, fmt.Errorf("the node is not known: %w", provisioner.ErrNotFound)
	}
	data := s.dataPath(spec.VolumeID, have)
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		return records.Volume{}, fmt.Errorf("its data, %s, is gone, restore it from a backup: %w", data, provisioner.ErrPrecondition)
	} else if err != nil {
		return records.Volume{}, err
	}
	return have, nil
}

// admit decides whether a node may have the volume beside those that have it;
// done is true if it has it already.
func admit(have records.Volume, spec provisioner.AttachSpec, manyNodes bool) (done bool, err error) {
	if h, ok := have.Attachments[spec.Node]; ok {
		if h.Revoking {
			return false, fmt.Errorf("it is being taken from that node, detach it there to the end first: %w", provisioner.ErrBusy)
		}
		if h.ReadOnly != spec.ReadOnly {
			return false, fmt.Errorf("it is attached there with readOnly=%t: %w", h.ReadOnly, provisioner.ErrExists)
		}
		return true, nil
	}
	if manyNodes {
		return false, nil
	}
	for node, h := range have.Attachments {
		if single(have, h.AccessModes) || single(have, spec.AccessModes) {
			return false, fmt.Errorf("node %s has it and it is for one node at a time, detach it there first: %w",
				node, provisioner.ErrInUse)
		}
	}
	return false, nil
}

// single reports whether a use in these modes tolerates no other node.
func single(have records.Volume, use []provisioner.AccessMode) bool {
	return provisioner.SingleNode(have.AccessModes) || (len(use) > 0 && provisioner.SingleNode(use))
}

func (s *Storage) attachment(spec provisioner.AttachSpec, have records.Volume, h records.Holder) provisioner.Attachment {
	publish := map[string]string{records.ContextPath: s.imagePath(spec.VolumeID)}
	switch {
	case have.Shared():
		publish = map[string]string{records.ContextDirectory: s.directoryPath(spec.VolumeID), records.ContextNode: spec.Node}
	case have.Contained():
		publish = map[string]string{records.ContextFilesystem: s.imagePath(spec.VolumeID), records.ContextNode: spec.Node}
	case s.target != nil:
		export := blocktarget.Export{Volume: spec.VolumeID, Node: spec.Node, Token: s.token(spec.VolumeID, spec.Node, h.Grant)}
		publish = map[string]string{records.ContextTargetAddress: s.target.Address, records.ContextTargetExport: export.String()}
	}
	if spec.ReadOnly {
		publish[records.ContextReadOnly] = "true"
	}
	return provisioner.Attachment{PublishContext: publish}
}

// Detach takes the volume from the node, or from every node if none is named.
//
// With a target it is a proof: when it returns nil, no write of the node reaches
// the volume any more, wherever the node is; a target that cannot be asked is
// ErrUnavailable, and the node counts as having the volume until it could be.
//
// So it is for a directory, or a file system in an image, which no target can serve:
// while the node has it open, Detach fails with ErrUnavailable.
//
// An image without a target is only kept in the books: files cannot be taken from a process that
// has them open, so a node loses the volume when the plugin there closes its
// device, which has to come first. See provisioner.Attachments.
func (s *Storage) Detach(ctx context.Context, volumeID, node string) error {
	if !records.Valid(volumeID) {
		return nil
	}
	if err := s.detach(ctx, volumeID, node); err != nil {
		return fmt.Errorf("detach volume %s from node %q: %w", volumeID, node, err)
	}
	return nil
}

func (s *Storage) detach(ctx context.Context, volumeID, node string) error {
	unlock, err := s.lock(volumeID)
	if err != nil {
		return err
	}
	defer unlock()
	have, found, err := s.load(volumeID)
	if err != nil {
		return err
	}
	nodes := have.Holders(node)
	if !found || len(nodes) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.revoke(ctx, volumeID, node, have, nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		delete(have.Attachments, n)
	}
	return s.save(volumeID, have)
}
