package snaprpc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// TransportNVDATCP is what NVIDIA's SPDK calls its own NVMe/TCP initiator.
const TransportNVDATCP = "NVDA_TCP"

// TransportID says where a subsystem of NVMe over Fabrics is reached, in the
// words of SPDK's trid. Services differ in the case in which they tell it.
type TransportID struct {
	TrType  string `json:"trtype"`
	AdrFam  string `json:"adrfam,omitempty"`
	TrAddr  string `json:"traddr"`
	TrSvcID string `json:"trsvcid,omitempty"`
	SubNQN  string `json:"subnqn,omitempty"`
}

// Same reports whether two name the same subsystem by the same path.
func (t TransportID) Same(o TransportID) bool {
	return strings.EqualFold(t.TrType, o.TrType) && strings.EqualFold(t.AdrFam, o.AdrFam) &&
		strings.EqualFold(t.TrAddr, o.TrAddr) && t.TrSvcID == o.TrSvcID && t.SubNQN == o.SubNQN
}

// String is for people.
func (t TransportID) String() string {
	return fmt.Sprintf("%s at %s %s port %s", t.SubNQN, t.TrType, t.TrAddr, t.TrSvcID)
}

// NVMeBdev tells of a bdev over a namespace of such a subsystem.
type NVMeBdev struct {
	TrID TransportID `json:"trid"`
}

// NVMeController is a connection to a subsystem, by one path or several.
type NVMeController struct {
	Name  string     `json:"name"`
	Paths []NVMePath `json:"ctrlrs"`
}

// The words of NVMePath.State. The service tells the first that fits, in this order.
const (
	PathDeleting = "deleting"
	// PathFailed: given up; nothing but a reset that is asked for brings it back.
	PathFailed             = "failed"
	PathResetting          = "resetting"
	PathReconnectIsDelayed = "reconnect_is_delayed"
	PathDisabled           = "disabled"
	// PathEnabled says that nothing wrong was noticed yet, no more than that.
	PathEnabled = "enabled"
)

// NVMePath is one path of a connection.
type NVMePath struct {
	// State is one of the words above; empty if the service tells none.
	State string      `json:"state"`
	TrID  TransportID `json:"trid"`
	// Controller is the number that the storage has given to the connection, anew with each one
	// that is made; nil if the service tells none. A storage gives a number again only after the
	// connection that had it has ended there (NVMe base specification, dynamic controller model).
	Controller *uint16 `json:"cntlid,omitempty"`
}

// ControllerHealth is what a controller tells of itself; its counters, which have 128
// bits, are left out.
type ControllerHealth struct {
	ModelNumber      string `json:"model_number"`
	SerialNumber     string `json:"serial_number"`
	FirmwareRevision string `json:"firmware_revision"`
	TrAddr           string `json:"traddr"`
	// PercentageUsed is how much of the life of its medium is used, which may be above 100.
	PercentageUsed uint64 `json:"percentage_used"`
}

// BdevNvmeAttachController connects to a subsystem and returns the bdevs of its
// namespaces, "<name>n<nsid>". Unlike SPDK some services answer with one name.
func (c *Client) BdevNvmeAttachController(ctx context.Context, name string, to TransportID) ([]string, error) {
	p := struct {
		Name string `json:"name"`
		TransportID
	}{name, to}
	var out names
	err := c.Call(ctx, "bdev_nvme_attach_controller", p, &out)
	return out, err
}

// BdevNvmeGetControllers returns every connection.
func (c *Client) BdevNvmeGetControllers(ctx context.Context) ([]NVMeController, error) {
	var out []NVMeController
	err := c.Call(ctx, "bdev_nvme_get_controllers", nil, &out)
	return out, err
}

// BdevNvmeGetControllerHealthInfo reads the health page of the controller called name. The
// storage itself has to answer, so that an answer shows that it is in reach; while a
// network swallows what is sent, there is none until ctx or the client's timeout ends. SPDK
// refuses with CodeInternal, whether it has no such controller, storage is out of reach or
// does not know the command.
func (c *Client) BdevNvmeGetControllerHealthInfo(ctx context.Context, name string) (ControllerHealth, error) {
	var out ControllerHealth
	err := c.Call(ctx, "bdev_nvme_get_controller_health_info", params{"name": name}, &out)
	return out, err
}

// BdevNvmeDetachController ends a connection; its bdevs go.
func (c *Client) BdevNvmeDetachController(ctx context.Context, name string) error {
	return c.Call(ctx, "bdev_nvme_detach_controller", params{"name": name}, nil)
}

// names are a list of names, or one.
type names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *names) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*n = names{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(n))
}
