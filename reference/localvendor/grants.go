package localvendor

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/blocktarget/admission"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// Fencer has a target refuse every change under an epoch below the one named, or
// without one. When it returns nil none of them reaches the volume any more;
// *blocktarget.Admin is one.
type Fencer interface {
	Fence(ctx context.Context, volumeID string, epoch int64) error
}

// Revoker ends what a node, or every node if it is empty, does with a volume at
// the target. When it returns nil no write of theirs reaches the volume any
// more; *blocktarget.Admin is one.
type Revoker interface {
	Revoke(ctx context.Context, volumeID, node string) error
}

// Target is the process through which alone the nodes reach the volumes.
type Target struct {
	// Address is where the nodes reach it, "host:port".
	Address string
	Revoker Revoker
	// Fencer, if set, is how volumes are fenced by epochs.
	Fencer Fencer
	// Data reaches into what flows there; without it, volumes in use cannot
	// be copied by every file system, and none be limited.
	Data DataPath
}

// DataPath is what a target can do about the I/O of volumes; *blocktarget.Admin
// is one.
type DataPath interface {
	// Pause makes the changes to the volumes wait while during runs. After an
	// error they may not have.
	Pause(ctx context.Context, volumeIDs []string, during func(context.Context) error) error
	// Adjust has the limits of the volume take effect.
	Adjust(ctx context.Context, volumeID string) error
}

// keyFile holds the secret from which tokens are made, in hexadecimal.
const keyFile = ".grants.key"

// directoryKey returns the secret of a directory of volumes, made when there is
// none; the first caller makes it.
func directoryKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, keyFile)
	for range 2 {
		raw, err := os.ReadFile(path)
		if err == nil {
			key, err := hex.DecodeString(string(raw))
			if err != nil || len(key) != sha256.Size {
				return nil, fmt.Errorf("key %s is damaged: remove it, and attach anew what is attached: %w", path, provisioner.ErrPrecondition)
			}
			return key, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the key of the grants: %w", err)
		}
		if err := makeKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make the key of the grants: %w", err)
		}
	}
	return nil, fmt.Errorf("key %s comes and goes: %w", path, provisioner.ErrUnavailable)
}

// makeKey puts a whole key at path, or nothing if there is one.
func makeKey(path string) error {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails, crypto/rand
	whole := path + ".new-" + rand.Text()
	if err := files.Replace(whole, []byte(hex.EncodeToString(key))); err != nil {
		return err
	}
	defer func() { _ = os.Remove(whole) }()
	if err := os.Link(whole, path); err != nil {
		return err
	}
	return files.SyncDir(filepath.Dir(path))
}

// StoreID tells a directory of volumes from every other, so that a controller
// takes no receipt from the target of another one. It is no secret.
func StoreID(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make target directory: %w", err)
	}
	key, err := directoryKey(dir)
	if err != nil {
		return "", err
	}
	return mac(key, "store"), nil
}

func mac(key []byte, parts ...string) string {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		fmt.Fprintf(m, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// token returns the 128-bit token of a grant, in hexadecimal.
func (s *Storage) token(volumeID, node string, g *records.Grant) string {
	return mac(s.key, "token", g.Nonce, volumeID, node)
}

// granted gives the node a right at the target if it has none yet, and reports
// whether the record changed. A right that the key does not open any more is
// replaced.
func (s *Storage) granted(volumeID, node string, h *records.Holder) bool {
	if h.Grant != nil && h.Grant.TokenHash == blocktarget.HashToken(s.token(volumeID, node, h.Grant)) {
		return false
	}
	h.Grant = &records.Grant{Nonce: rand.Text()}
	h.Grant.TokenHash = blocktarget.HashToken(s.token(volumeID, node, h.Grant))
	return true
}

// revoke takes the rights of nodes back at the target. First the record says
// so, for good: from then on the target lets no node in that was not in, and until
// the target has confirmed that it put out those that were, the nodes count as
// having the volume.
func (s *Storage) revoke(ctx context.Context, volumeID, node string, have records.Volume, nodes []string) error {
	if s.target == nil && have.ByTarget() {
		return needsTarget(have, nodes)
	}
	changed := false
	for _, n := range nodes {
		if h := have.Attachments[n]; !h.Revoking {
			h.Revoking, changed = true, true
			have.Attachments[n] = h
		}
	}
	if changed {
		if err := s.save(volumeID, have); err != nil {
			return err
		}
	}
	if !have.ByTarget() {
		return s.unopened(volumeID, nodes)
	}
	if err := s.target.Revoker.Revoke(ctx, volumeID, node); err != nil {
		return fmt.Errorf("no new client is let in, but those that are in may write until the target answers, repeat: %w: %w",
			provisioner.ErrUnavailable, err)
	}
	return nil
}

// needsTarget refuses to take back without a target what was given through one.
func needsTarget(have records.Volume, nodes []string) error {
	for _, n := range nodes {
		if have.Attachments[n].Grant != nil {
			return fmt.Errorf("node %s reaches it through a block target, which this controller does not know: start it with the target's socket: %w",
				n, provisioner.ErrPrecondition)
		}
	}
	return nil
}

// Grants tells a target who may open the volumes of a directory: the records of
// the volumes are the truth, which a Storage in another process may write.
type Grants struct {
	// Dir is the directory of the volumes.
	Dir string
}

// Grant implements blocktarget.Grants.
func (g Grants) Grant(volume, node string) (blocktarget.Grant, error) {
	none := func(why string) (blocktarget.Grant, error) {
		return blocktarget.Grant{}, fmt.Errorf("%q has no right to volume %q (%s): %w", node, volume, why, blocktarget.ErrDenied)
	}
	have, found, err := records.Load(g.Dir, volume)
	if err != nil {
		return blocktarget.Grant{}, err
	}
	h, holds := have.Attachments[node]
	switch {
	case !found || !holds:
		return none("it is not attached there")
	case h.Revoking:
		return none("it is being taken back")
	case h.Grant == nil:
		return none("it is attached there by its file")
	}
	return blocktarget.Grant{
		File: filepath.Join(g.Dir, volume+".img"), TokenHash: h.Grant.TokenHash,
		ReadOnly: h.ReadOnly || records.ReadOnlyModes(h.AccessModes), Limits: admission.Limits(have.Limits),
		Fenced: have.Fenced,
	}, nil
}

// Fence has the target refuse every change of the volume under an epoch below the one
// named, or without one. First the record says so, for good: from then on the target
// opens nothing under such an epoch, also after a restart; then the target ends what
// is open. See provisioner.Fencing.
func (s *Storage) Fence(ctx context.Context, volumeID string, epoch int64) error {
	if err := s.fence(ctx, volumeID, epoch); err != nil {
		return fmt.Errorf("fence volume %q below epoch %d: %w", volumeID, epoch, err)
	}
	return nil
}

func (s *Storage) fence(ctx context.Context, volumeID string, epoch int64) error {
	if epoch < 1 {
		return fmt.Errorf("epochs begin at 1: %w", provisioner.ErrInvalid)
	}
	unlock, err := s.lock(volumeID)
	if err != nil {
		return err
	}
	defer unlock()
	have, found, err := s.load(volumeID)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("the volume does not exist: %w", provisioner.ErrNotFound)
	case !have.ByTarget():
		return fmt.Errorf("it is a directory, before which no target stands: %w", provisioner.ErrUnsupported)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if epoch > have.Fenced {
		have.Fenced = epoch
		if err := s.save(volumeID, have); err != nil {
			return err
		}
	}
	if err := s.target.Fencer.Fence(ctx, volumeID, epoch); err != nil {
		return fmt.Errorf("nothing is opened under an epoch that is over, but what is open may change it until the target answers, repeat: %w: %w",
			provisioner.ErrUnavailable, err)
	}
	return nil
}
