package kit

import (
	"path/filepath"
	"time"

	"github.com/moor-storage/moor/internal/snapemu"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// rpcTimeout bounds one call of a test to an emulator.
const rpcTimeout = 30 * time.Second

// SNAP reaches the emulated SNAP service of a DPU.
func SNAP(dpu string) *snaprpc.Client {
	own := filepath.Join(layout.MachineDir(dpu), "var-lib-moor")
	return snaprpc.New(filepath.Join(own, "snap", "providers", "nvidia", "snap.sock"), rpcTimeout)
}

// MediumLog reads what the medium accepted of a volume, in order, from every
// DPU. The id is that of the vendor's volume.
func MediumLog(vendorVolume string) ([]snapemu.MediumWrite, error) {
	return snapemu.ReadMediumLog(snapemu.MediumLogPath(filepath.Join(layout.TargetSource(), "log"), vendorVolume+".img"))
}
