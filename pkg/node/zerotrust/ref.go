package zerotrust

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/internal/hostdev"
)

// ErrSyntax is text that names no device, or a table that cannot be understood.
var ErrSyntax = errors.New("not understood")

// Ref names a device.
type Ref struct {
	// Tag of a file system, or UUID of a namespace; or else Address, and
	// NamespaceID if it is not 0.
	Tag         string
	UUID        string
	Address     string
	NamespaceID int64
}

var uuidText = regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// maxTag is the longest tag that virtio 1.3, 5.11.4 allows, in bytes.
const maxTag = 36

// ParseRef reads <uuid>, uuid=<uuid>, tag=<tag>, <pci address> or <pci
// address>/<namespace>.
func ParseRef(text string) (Ref, error) {
	if tag, named := strings.CutPrefix(text, "tag="); named {
		if tag == "" || len(tag) > maxTag || strings.ContainsAny(tag, "/ \t\n") {
			return Ref{}, fmt.Errorf("device %q: want a tag of 1 to %d letters without blanks and slashes: %w", text, maxTag, ErrSyntax)
		}
		return Ref{Tag: tag}, nil
	}
	id, named := strings.CutPrefix(strings.ToLower(text), "uuid=")
	if uuidText.MatchString(id) && strings.Trim(id, "0-") != "" {
		return Ref{UUID: id}, nil
	}
	address, nsid, numbered := strings.Cut(text, "/")
	r := Ref{}
	var err error
	if r.Address, err = hostdev.NormalizeAddress(address); named || err != nil {
		return Ref{}, fmt.Errorf("device %q: want a UUID, tag=<tag>, or a PCI address such as 0000:3b:00.2 or 0000:3b:00.2/1: %w", text, ErrSyntax)
	}
	if numbered {
		if r.NamespaceID, err = hostdev.ParseNamespaceID(nsid); err != nil {
			return Ref{}, fmt.Errorf("device %q: %w: %w", text, err, ErrSyntax)
		}
	}
	return r, nil
}

// String is what ParseRef reads.
func (r Ref) String() string {
	switch {
	case r.Tag != "":
		return "tag=" + r.Tag
	case r.UUID != "":
		return "uuid=" + r.UUID
	case r.NamespaceID != 0:
		return r.Address + "/" + strconv.FormatInt(r.NamespaceID, 10)
	}
	return r.Address
}

func (r Ref) means(b Shown) bool {
	switch {
	case r.Tag != "":
		return b.Tag == r.Tag
	case r.UUID != "":
		return b.UUID == r.UUID
	}
	return b.Address == r.Address && (r.NamespaceID == 0 || b.NamespaceID == r.NamespaceID)
}

// Pick returns the one device that is meant. hostdev.ErrAbsent if there is
// none, ErrSyntax if there are several.
func (r Ref) Pick(all []Shown) (Shown, error) {
	var found []Shown
	for _, b := range all {
		if r.means(b) {
			found = append(found, b)
		}
	}
	switch len(found) {
	case 0:
		return Shown{}, fmt.Errorf("the DPU does not show device %s: is the DPUVolumeAttachment ready, and is the PCI function bound to its driver (moor-host prepare)? %w", r, hostdev.ErrAbsent)
	case 1:
		return found[0], nil
	}
	return Shown{}, fmt.Errorf("%d devices are %s (%s and %s, to begin with): name one of them by its namespace, if it has one: %w", len(found), r, found[0].Name, found[1].Name, ErrSyntax)
}
