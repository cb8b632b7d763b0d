package model

import (
	"slices"
	"strings"
	"syscall"
)

// Fabric is a connection to a subsystem of NVMe over Fabrics: the controller's
// name and the path, in the words that SPDK tells it.
type Fabric struct {
	Controller                              string
	TrType, AdrFam, TrAddr, TrSvcID, SubNQN string
}

// maxNQN is the longest name of a subsystem in bytes, NVMe base 4.7.
const maxNQN = 223

// The transports and address families that a path can have.
var (
	transports = []string{"TCP", "RDMA", "NVDA_TCP"}
	families   = []string{"IPv4", "IPv6"}
)

// Connect checks a new connection and returns it as SPDK will tell it. EINVAL
// for words it does not know, EALREADY if the controller's name is taken, EEXIST
// if the subsystem's namespace is a bdev already, under whatever name.
func (m *Model) Connect(f Fabric) (*Fabric, error) {
	trtype, known := fold(transports, f.TrType)
	if !known {
		return nil, Refuse(syscall.EINVAL, "trtype %q", f.TrType)
	}
	adrfam, known := fold(families, f.AdrFam)
	if !known {
		return nil, Refuse(syscall.EINVAL, "adrfam %q", f.AdrFam)
	}
	if n := len(f.SubNQN); n == 0 || n > maxNQN || !strings.HasPrefix(f.SubNQN, "nqn.") || strings.ContainsAny(f.SubNQN, "/\x00") {
		return nil, Refuse(syscall.EINVAL, "subnqn %q", f.SubNQN)
	}
	for _, b := range m.Bdevs {
		switch have := b.Fabric; {
		case have == nil:
		case have.Controller == f.Controller:
			return nil, Refuse(syscall.EALREADY, "controller %s", f.Controller)
		case have.SubNQN == f.SubNQN:
			return nil, Refuse(syscall.EEXIST, "bdev %s is the namespace of %s", b.Name, f.SubNQN)
		}
	}
	f.TrType, f.AdrFam = trtype, adrfam
	return &f, nil
}

// ConnectedBy returns the bdev of that controller; nil if there is none.
func (m *Model) ConnectedBy(controller string) *Bdev {
	i := slices.IndexFunc(m.Bdevs, func(b *Bdev) bool { return b.Fabric != nil && b.Fabric.Controller == controller })
	if i < 0 {
		return nil
	}
	return m.Bdevs[i]
}

// fold returns the word that s is but for its case.
func fold(words []string, s string) (string, bool) {
	i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, s) })
	if i < 0 {
		return "", false
	}
	return words[i], true
}
