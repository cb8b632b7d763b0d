package snapemulator

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/google/uuid"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/snapemulator/wire"
)

// fabricMethods are SPDK's NVMe over Fabrics initiator. There is no network
// behind it: any address reaches the files of one directory.
func fabricMethods() map[string]handler {
	return map[string]handler{
		"bdev_nvme_attach_controller":          method(fabricAttach),
		"bdev_nvme_get_controllers":            method(fabricList),
		"bdev_nvme_get_controller_health_info": fabricHealth,
		"bdev_nvme_detach_controller":          method(fabricDetach),
	}
}

// fabricParams are what SPDK's decoder of bdev_nvme_attach_controller knows; all
// but the path is taken and changes nothing.
type fabricParams struct {
	Name    string `json:"name" snap:"must"`
	TrType  string `json:"trtype" snap:"must"`
	TrAddr  string `json:"traddr" snap:"must"`
	AdrFam  string `json:"adrfam"`
	TrSvcID string `json:"trsvcid"`
	SubNQN  string `json:"subnqn"`

	HostNQN     string `json:"hostnqn"`
	HostAddr    string `json:"hostaddr"`
	HostSvcID   string `json:"hostsvcid"`
	Priority    string `json:"priority"`
	PrchkReftag bool   `json:"prchk_reftag"`
	PrchkGuard  bool   `json:"prchk_guard"`
	HDGST       bool   `json:"hdgst"`
	DDGST       bool   `json:"ddgst"`
	Multipath   string `json:"multipath"`
	PSK         string `json:"psk"`
	DHChapKey   string `json:"dhchap_key"`
	DHChapCtrlr string `json:"dhchap_ctrlr_key"`
	MaxBdevs    int    `json:"max_bdevs"`
	NumIOQueues int    `json:"num_io_queues"`
	CtrlrLoss   int    `json:"ctrlr_loss_timeout_sec"`
	Reconnect   int    `json:"reconnect_delay_sec"`
	FastIOFail  int    `json:"fast_io_fail_timeout_sec"`
	ConnectUS   int64  `json:"fabrics_connect_timeout_us"`
}

func fabricAttach(_ context.Context, e *Emulator, p fabricParams) (any, error) {
	f, err := e.model.Connect(model.Fabric{
		Controller: p.Name, TrType: p.TrType, AdrFam: p.AdrFam, TrAddr: p.TrAddr, TrSvcID: p.TrSvcID, SubNQN: p.SubNQN,
	})
	if err != nil {
		return nil, err
	}
	if e.opts.FabricDir == "" {
		return nil, model.Refuse(syscall.EIO, "no subsystem can be reached: the emulator was given no directory of them")
	}
	file := filepath.Join(e.opts.FabricDir, f.SubNQN+".img")
	s, size, err := e.openFile(file, false)
	if err != nil { // SPDK answers so when the target cannot be reached, or does not have the subsystem
		return nil, model.Refuse(syscall.EIO, "%v", err)
	}
	name, err := e.addBdev(model.Bdev{
		Name: p.Name + "n1", Product: model.NVMe, BlockSize: 512, NumBlocks: size / 512, Filename: file, Fabric: f,
		// A namespace has one identity, the same for every observer.
		UUID: uuid.NewSHA1(uuid.NameSpaceURL, []byte(f.SubNQN)).String(),
	}, s)
	if err != nil {
		return nil, err
	}
	return []any{name}, nil
}

// fabricList lists the controllers, and every bdev over a block target as the controller
// that it stands for, with the bdev's name: to a client it is lost and found as one is.
func fabricList(_ context.Context, e *Emulator, p name0) (any, error) {
	out := []any{}
	for _, b := range e.model.Bdevs {
		name, trid := controllerOf(b)
		if name == "" || p.Name != "" && p.Name != name {
			continue
		}
		out = append(out, map[string]any{
			"name": name, "ctrlrs": []any{map[string]any{"state": e.controllerState(b), "cntlid": e.controllerNumber(b), "trid": trid}},
		})
	}
	if p.Name != "" && len(out) == 0 {
		return nil, model.Refuse(syscall.EINVAL, "controller %s", p.Name)
	}
	return out, nil
}

// controllerOf is the controller that a bdev is reached by; no name if there is none.
func controllerOf(b *model.Bdev) (name string, trid snaprpc.TransportID) {
	switch {
	case b.Fabric != nil:
		return b.Fabric.Controller, wire.TridOf(b.Fabric)
	case b.Target != nil:
		return b.Name, wire.TridOfTarget(b.Target)
	}
	return "", trid
}

// controllerStates are SPDK's words for the states of a connection to a target.
var controllerStates = map[blocktarget.State]string{
	blocktarget.Connected: "enabled", blocktarget.Reconnecting: "reconnect_is_delayed", blocktarget.GivenUp: "failed",
}

// controllerState is the state of the controller that a bdev is reached by.
func (e *Emulator) controllerState(b *model.Bdev) string {
	state := blocktarget.Connected // files are always there
	if device, ok := e.stores[b.Name].Backing().(*blocktarget.Device); ok {
		state, _ = device.State()
	}
	return controllerStates[state]
}

// controllerNumber is the number that the storage gives to the connection there is, anew with each.
func (e *Emulator) controllerNumber(b *model.Bdev) int {
	if device, ok := e.stores[b.Name].Backing().(*blocktarget.Device); ok {
		return 1 + device.Remade()
	}
	return 1
}

// healthParams are what bdev_nvme_get_controller_health_info is asked for.
type healthParams struct {
	Name string `json:"name" snap:"must"`
}

// fabricHealth reads a controller's health page, which is a command that the storage
// has to answer; without the emulator's lock: a target that is out of reach must not
// hold up others. SPDK refuses with these words, and the code of an internal error.
func fabricHealth(ctx context.Context, e *Emulator, raw json.RawMessage) (any, error) {
	p, err := wire.Decode[healthParams](raw)
	if err != nil {
		return nil, &snaprpc.Error{Code: snaprpc.CodeInvalidParams, Message: "Invalid parameters: " + err.Error()}
	}
	trid, store := e.controllerStore(p.Name)
	if store == nil {
		return nil, &snaprpc.Error{Code: snaprpc.CodeInternal, Message: "Device not found"}
	}
	if device, ok := store.Backing().(*blocktarget.Device); ok {
		ctx, cancel := context.WithTimeout(ctx, targetOpenTimeout)
		defer cancel()
		if err := device.Probe(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", &snaprpc.Error{Code: snaprpc.CodeInternal, Message: "Internal error."}, err)
		}
	}
	io := store.Counts()
	return map[string]any{
		"model_number": "Moor emulated storage", "serial_number": trid.SubNQN, "firmware_revision": "1", "traddr": trid.TrAddr,
		"available_spare_percentage": 100, "available_spare_threshold_percentage": 10, "percentage_used": 0,
		"host_read_commands": io.Reads, "host_write_commands": io.Writes, "media_errors": 0, "num_err_log_entries": io.Errors,
	}, nil
}

// controllerStore is the path of the controller called name, and the storage behind it;
// nil if there is no such controller.
func (e *Emulator) controllerStore(name string) (snaprpc.TransportID, *datapath.Store) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.model.Bdevs {
		if have, trid := controllerOf(b); have != "" && have == name {
			return trid, e.stores[b.Name]
		}
	}
	return snaprpc.TransportID{}, nil
}

func fabricDetach(ctx context.Context, e *Emulator, p struct {
	Name      string `json:"name" snap:"must"`
	TrType    string `json:"trtype"`
	AdrFam    string `json:"adrfam"`
	TrAddr    string `json:"traddr"`
	TrSvcID   string `json:"trsvcid"`
	SubNQN    string `json:"subnqn"`
	HostAddr  string `json:"hostaddr"`
	HostSvcID string `json:"hostsvcid"`
},
) (any, error) {
	b := e.model.ConnectedBy(p.Name)
	if b == nil {
		return nil, model.Refuse(syscall.ENODEV, "controller %s", p.Name)
	}
	f := b.Fabric
	for given, have := range map[string]string{p.TrAddr: f.TrAddr, p.TrSvcID: f.TrSvcID, p.SubNQN: f.SubNQN} {
		if given != "" && given != have {
			return nil, model.Refuse(syscall.ENXIO, "controller %s has no path %s", p.Name, given)
		}
	}
	return deleteBdev(model.NVMe)(ctx, e, struct {
		Name string `json:"name" snap:"must"`
	}{b.Name})
}
