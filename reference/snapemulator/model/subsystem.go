package model

import (
	"slices"
	"strings"
	"syscall"

	"github.com/google/uuid"
)

// SubsystemSpec is what nvme_subsystem_create asks for; zero fields get SNAP's
// defaults.
type SubsystemSpec struct {
	NQN, SerialNumber, ModelNumber string
	NN, MNAN                       uint64
}

// CreateSubsystem makes a subsystem. EINVAL for a bad NQN or bound, EEXIST if
// the NQN is taken.
func (m *Model) CreateSubsystem(spec SubsystemSpec) error {
	switch {
	case spec.NQN == "" || len(spec.NQN) > MaxNQN:
		return Refuse(syscall.EINVAL, "an NQN has 1 to %d bytes, not %d", MaxNQN, len(spec.NQN))
	case !strings.HasPrefix(spec.NQN, "nqn."):
		return Refuse(syscall.EINVAL, "NQN %q does not begin with nqn.", spec.NQN)
	case spec.NN > DefaultNN:
		return Refuse(syscall.EINVAL, "nn %d is above %d", spec.NN, uint64(DefaultNN))
	case m.subsystem(spec.NQN) != nil:
		return Refuse(syscall.EEXIST, "subsystem %s", spec.NQN)
	}
	s := &Subsystem{NQN: spec.NQN, SerialNumber: spec.SerialNumber, ModelNumber: spec.ModelNumber, NN: spec.NN, MNAN: spec.MNAN}
	s.fill()
	if s.MNAN > s.NN {
		return Refuse(syscall.EINVAL, "mnan %d is above nn %d", s.MNAN, s.NN)
	}
	m.Subsystems = append(m.Subsystems, s)
	return nil
}

func (s *Subsystem) fill() {
	if s.ModelNumber == "" {
		s.ModelNumber = DefaultModelNumber
	}
	if s.SerialNumber == "" {
		s.SerialNumber = "MNC12"
	}
	if s.NN == 0 {
		s.NN = DefaultNN
	}
	if s.MNAN == 0 {
		s.MNAN = min(DefaultMNAN, s.NN)
	}
}

// DestroySubsystem removes a subsystem. EBUSY while it holds something, unless
// force, which removes that too. ENOENT if it is not there.
func (m *Model) DestroySubsystem(nqn string, force bool) error {
	s := m.subsystem(nqn)
	if s == nil {
		return Refuse(syscall.ENOENT, "subsystem %s", nqn)
	}
	if !force && len(s.Controllers)+len(s.Namespaces) > 0 {
		return Refuse(syscall.EBUSY, "subsystem %s holds %d controllers and %d namespaces", nqn, len(s.Controllers), len(s.Namespaces))
	}
	for _, c := range slices.Clone(s.Controllers) {
		m.removeController(c)
	}
	for _, ns := range slices.Clone(s.Namespaces) {
		m.removeNamespace(ns)
	}
	m.Subsystems = slices.DeleteFunc(m.Subsystems, func(x *Subsystem) bool { return x == s })
	return nil
}

// NamespaceSpec is what nvme_namespace_create asks for.
type NamespaceSpec struct {
	NQN, Bdev, UUID string
	// Type is "spdk" or empty.
	Type string
	NSID uint64
}

// CreateNamespace makes a namespace and claims its bdev. ENOENT without the
// subsystem, ENODEV without the bdev, EBUSY if another namespace holds it,
// EEXIST if the NSID is taken, ENOSPC beyond mnan, EINVAL for bad values.
func (m *Model) CreateNamespace(spec NamespaceSpec) error {
	s := m.subsystem(spec.NQN)
	if s == nil {
		return Refuse(syscall.ENOENT, "subsystem %s", spec.NQN)
	}
	if err := s.checkNamespace(spec); err != nil {
		return err
	}
	b := m.Bdev(spec.Bdev)
	if b == nil {
		return Refuse(syscall.ENODEV, "bdev %s", spec.Bdev)
	}
	if b.Claim != nil {
		return Refuse(syscall.EBUSY, "bdev %s is claimed by namespace %d of %s", b.Name, b.Claim.NSID, b.Claim.Subsystem.NQN)
	}
	ns := &Namespace{NSID: spec.NSID, UUID: spec.UUID, Bdev: b, Subsystem: s}
	if ns.UUID == "" {
		ns.UUID = m.newUUID()
	}
	b.Claim = ns
	s.Namespaces = append(s.Namespaces, ns)
	return nil
}

func (s *Subsystem) checkNamespace(spec NamespaceSpec) error {
	switch {
	case spec.Type != "" && spec.Type != "spdk":
		return Refuse(syscall.EINVAL, "bdev_type %q; only spdk is known", spec.Type)
	case spec.NSID == 0 || spec.NSID > s.NN:
		return Refuse(syscall.EINVAL, "nsid %d is not in 1..%d", spec.NSID, s.NN)
	case spec.UUID != "" && uuid.Validate(spec.UUID) != nil:
		return Refuse(syscall.EINVAL, "uuid %q", spec.UUID)
	case s.namespace(spec.NSID) != nil:
		return Refuse(syscall.EEXIST, "namespace %d of %s", spec.NSID, s.NQN)
	case uint64(len(s.Namespaces)) >= s.MNAN:
		return Refuse(syscall.ENOSPC, "subsystem %s holds its %d namespaces", s.NQN, s.MNAN)
	}
	return nil
}

// DestroyNamespace removes a namespace and frees its bdev. ENOENT if it is not
// there, EBUSY while it is attached.
func (m *Model) DestroyNamespace(nqn string, nsid uint64) error {
	s := m.subsystem(nqn)
	if s == nil {
		return Refuse(syscall.ENOENT, "subsystem %s", nqn)
	}
	ns := s.namespace(nsid)
	if ns == nil {
		return Refuse(syscall.ENOENT, "namespace %d of %s", nsid, nqn)
	}
	if ns.Controller != nil {
		return Refuse(syscall.EBUSY, "namespace %d of %s is attached to %s", nsid, nqn, ns.Controller.ID)
	}
	m.removeNamespace(ns)
	return nil
}

func (m *Model) removeNamespace(ns *Namespace) {
	ns.Bdev.Claim, ns.Controller = nil, nil
	s := ns.Subsystem
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(x *Namespace) bool { return x == ns })
}

func (m *Model) subsystem(nqn string) *Subsystem {
	for _, s := range m.Subsystems {
		if s.NQN == nqn {
			return s
		}
	}
	return nil
}

func (s *Subsystem) namespace(nsid uint64) *Namespace {
	for _, ns := range s.Namespaces {
		if ns.NSID == nsid {
			return ns
		}
	}
	return nil
}
