package snapemulator

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/google/uuid"

	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/snapemulator/wire"
)

// fabricMethods are SPDK's NVMe over Fabrics initiator. There is no network
// behind it: any address reaches the files of one directory.
func fabricMethods() map[string]handler {
	return map[string]handler{
		"bdev_nvme_attach_controller": method(fabricAttach),
		"bdev_nvme_get_controllers":   method(fabricList),
		"bdev_nvme_detach_controller": method(fabricDetach),
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

func fabricList(_ context.Context, e *Emulator, p name0) (any, error) {
	out := []any{}
	for _, b := range e.model.Bdevs {
		if f := b.Fabric; f != nil && (p.Name == "" || p.Name == f.Controller) {
			out = append(out, map[string]any{
				"name": f.Controller, "ctrlrs": []any{map[string]any{"state": "enabled", "cntlid": 1, "trid": wire.TridOf(f)}},
			})
		}
	}
	if p.Name != "" && len(out) == 0 {
		return nil, model.Refuse(syscall.EINVAL, "controller %s", p.Name)
	}
	return out, nil
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
