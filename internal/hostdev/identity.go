package hostdev

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Identity is what is known of a namespace: where it was shown, and its UUID.
// The UUID may be empty; then the place alone counts. The VUID says on which
// function, of those that have the address in one PCI domain or another; it may
// be empty, too.
//
// A hot-plugged function can come back at another address after a power cycle,
// and its old address then be another volume's, so what has a UUID is found by it.
type Identity struct {
	Address     string
	NamespaceID int64
	UUID        string
	VUID        string
}

// Seek returns the block device of the namespace that id means: the one at its
// place, unless that has another UUID, or else the one with its UUID wherever it
// is. Where sysfs shows no UUID, the place counts. A function with another VUID
// is not the place. It never waits. ErrAbsent and ErrAddress are as for Find;
// ErrAmbiguous if the VUID does not say which function is the place.
func (f *Finder) Seek(id Identity) (Block, error) {
	at, err := f.atPlace(id)
	if id.UUID == "" || (err != nil && !errors.Is(err, ErrAbsent)) {
		return at, err
	}
	if err == nil {
		shown := f.uuidOf(at)
		if shown == "" || strings.EqualFold(shown, id.UUID) {
			return at, nil
		}
		err = fmt.Errorf("namespace %d of PCI function %s is another volume's (UUID %s): %w", id.NamespaceID, at.Address, shown, ErrAbsent)
	}
	all, listErr := f.List()
	if listErr != nil {
		return Block{}, listErr
	}
	for _, b := range all {
		if strings.EqualFold(f.uuidOf(b), id.UUID) {
			return b, nil
		}
	}
	return Block{}, fmt.Errorf("no namespace has UUID %s: %w", id.UUID, err)
}

// atPlace is Find on the function that id means.
func (f *Finder) atPlace(id Identity) (Block, error) {
	addr, err := f.locate(id.Address, id.VUID)
	if err != nil {
		return Block{}, err
	}
	return f.Find(addr, id.NamespaceID)
}

// uuidOf returns the UUID that sysfs shows of a namespace; empty if none.
func (f *Finder) uuidOf(b Block) string {
	found, _ := filepath.Glob(f.Roots.sys("bus/pci/drivers/nvme", b.Address, "nvme/*/nvme*n*/uuid"))
	for _, path := range found {
		m := namespaceName.FindStringSubmatch(filepath.Base(filepath.Dir(path)))
		if m != nil && m[1]+m[2] == b.Name {
			text, _ := readTrimmed(path)
			return text
		}
	}
	return ""
}

// WaitFor is Seek repeated as Wait repeats Find.
func (f *Finder) WaitFor(ctx context.Context, id Identity) (Block, error) {
	b, err := f.await(ctx, id, func() (Block, error) { return f.Seek(id) })
	if err != nil {
		return Block{}, fmt.Errorf("wait for namespace %d of PCI function %s: %w", id.NamespaceID, id.Address, err)
	}
	return b, nil
}
