// Package nvme shows SPDK block devices to the host as NVMe namespaces on emulated
// functions, static or hot-plugged, and takes them away.
//
// Every volume has a subsystem of its own, named for its device. No other
// subsystem is touched, but for a namespace there that holds the very device that
// is to be withdrawn.
package nvme

import (
	"context"

	"github.com/google/uuid"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// Emulation is the emulation of NVMe by one service.
type Emulation struct {
	*service.Service
	newUUID func() string
}

// New makes it; newUUID makes identities of namespaces, nil is random version
// 4.
func New(s *service.Service, newUUID func() string) *Emulation {
	if newUUID == nil {
		newUUID = uuid.NewString
	}
	return &Emulation{Service: s, newUUID: newUUID}
}

func (d *Emulation) subsystems(ctx context.Context) ([]snaprpc.Subsystem, error) {
	all, err := d.RPC.NvmeSubsystemList(ctx)
	return all, service.Explain(err, service.Unread, "list the subsystems")
}

func (d *Emulation) functions(ctx context.Context) ([]snaprpc.Function, error) {
	all, err := d.RPC.EmulationFunctionList(ctx)
	return all, service.Explain(err, service.Unread, "list the emulated functions")
}
