package vendorplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	epochv1 "github.com/moor-storage/moor/api/epoch/v1"
	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

const (
	// DefaultTimeout bounds a call when New is given none; as long as DPF's
	// node driver waits for a plugin.
	DefaultTimeout = time.Minute
	// pageSize is how many devices ListDevices asks for at once.
	pageSize = 500
	// maxPages ends the listing of a plugin whose pages never end.
	maxPages = 1000
)

// Capabilities are what a plugin can do.
type Capabilities struct {
	// Block and Filesystem: it makes and removes such devices.
	Block, Filesystem bool
	// Get and List: it serves GetDevice and ListDevices.
	Get, List bool
	// Epochs: it serves EpochService, an addition of Moor. Vet finds it out.
	Epochs bool
}

// Supports reports whether the plugin makes devices of that mode.
func (c Capabilities) Supports(m provisioner.VolumeMode) bool {
	return (m == provisioner.Block && c.Block) || (m == provisioner.Filesystem && c.Filesystem)
}

// Client calls one vendor plugin. Every call ends after the timeout at the
// latest. An error wraps one of provisioner's: ErrUnavailable if the plugin is
// absent, late, or failed without saying whether it had an effect; ErrNotFound,
// ErrUnsupported, ErrPrecondition and so on if it refused. Safe for concurrent
// use; one connection is kept and made anew when the socket is replaced.
type Client struct {
	name    string
	socket  string
	timeout time.Duration
	line    line
}

// New returns a client of the plugin called name under root, see SocketPath.
// A timeout that is not positive means DefaultTimeout. Nothing is dialed.
func New(root, name string, timeout time.Duration) (*Client, error) {
	socket, err := SocketPath(root, name)
	if err != nil {
		return nil, err
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Client{name: name, socket: socket, timeout: timeout, line: line{socket: socket, timeout: timeout}}, nil
}

// Close ends the connection once the calls under way have ended. The client
// may be used again; it dials anew.
func (c *Client) Close() { c.line.close() }

// AwaitLoss waits until the connection that the last call used is lost, and
// returns nil then; or until ctx ends, and returns its error. Where there is no
// connection it is lost already.
func (c *Client) AwaitLoss(ctx context.Context) error {
	conn, release := c.line.current()
	if conn == nil {
		return nil
	}
	defer release()
	for state := conn.GetState(); state == connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
	return nil
}

// call runs one RPC with a deadline over the kept connection.
func call[T any](ctx context.Context, c *Client, verb string, do func(context.Context, *services) (T, error)) (T, error) {
	var none T
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	s, release, err := c.line.take()
	if err != nil {
		return none, fmt.Errorf("vendor plugin %s at %s does not answer %s (%v); is its pod running on this DPU? %w",
			c.name, c.socket, verb, err, provisioner.ErrUnavailable)
	}
	defer release()
	got, err := do(bounded, s)
	if err != nil {
		return none, c.fromStatus(ctx, verb, err)
	}
	return got, nil
}

// Info asks the plugin who it is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	r, err := call(ctx, c, "GetPluginInfo", func(ctx context.Context, s *services) (*pluginv1.GetPluginInfoResponse, error) {
		return s.identity.GetPluginInfo(ctx, &pluginv1.GetPluginInfoRequest{})
	})
	return Info{Name: r.GetName(), Version: r.GetVendorVersion(), Manifest: r.GetManifest()}, err
}

// Probe returns nil if the plugin is ready; ErrUnavailable if it is still
// starting. A plugin that leaves the answer open is ready (as in CSI).
func (c *Client) Probe(ctx context.Context) error {
	r, err := call(ctx, c, "Probe", func(ctx context.Context, s *services) (*pluginv1.ProbeResponse, error) {
		return s.identity.Probe(ctx, &pluginv1.ProbeRequest{})
	})
	if err == nil && r.GetReady() != nil && !r.GetReady().GetValue() {
		err = fmt.Errorf("vendor plugin %s is still starting: %w", c.name, provisioner.ErrUnavailable)
	}
	return err
}

// Capabilities asks what the plugin can do; what is not known here is ignored.
func (c *Client) Capabilities(ctx context.Context) (Capabilities, error) {
	r, err := call(ctx, c, "StoragePluginGetCapabilities", func(ctx context.Context, s *services) (*pluginv1.StoragePluginGetCapabilitiesResponse, error) {
		return s.storage.StoragePluginGetCapabilities(ctx, &pluginv1.StoragePluginGetCapabilitiesRequest{})
	})
	var out Capabilities
	for _, have := range r.GetCapabilities() {
		switch have.GetRpc().GetType() {
		case pluginv1.StoragePluginServiceCapability_RPC_TYPE_CREATE_DELETE_BLOCK_DEVICE:
			out.Block = true
		case pluginv1.StoragePluginServiceCapability_RPC_TYPE_CREATE_DELETE_FS_DEVICE:
			out.Filesystem = true
		case pluginv1.StoragePluginServiceCapability_RPC_TYPE_GET_DEVICE_STATS:
			out.Get = true
		case pluginv1.StoragePluginServiceCapability_RPC_TYPE_LIST_DEVICES:
			out.List = true
		}
	}
	return out, err
}

// Provider returns the name of the SNAP process that the plugin uses, never
// empty: the default one is DefaultProvider.
func (c *Client) Provider(ctx context.Context) (string, error) {
	r, err := call(ctx, c, "GetSNAPProvider", func(ctx context.Context, s *services) (*pluginv1.GetSNAPProviderResponse, error) {
		return s.storage.GetSNAPProvider(ctx, &pluginv1.GetSNAPProviderRequest{})
	})
	if err != nil {
		return "", err
	}
	name := r.GetProviderName()
	if name == "" {
		return DefaultProvider, nil
	}
	if strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return "", fmt.Errorf("vendor plugin %s names SNAP provider %q, which cannot be a directory: %w", c.name, name, provisioner.ErrPrecondition)
	}
	return name, nil
}

// CreateDevice makes the device of a volume and returns its name. Idempotent.
func (c *Client) CreateDevice(ctx context.Context, spec provisioner.OpenSpec) (string, error) {
	if spec.VolumeID == "" {
		return "", fmt.Errorf("create a device: no volume is named: %w", provisioner.ErrInvalid)
	}
	modes, err := toWire(spec.AccessModes)
	if err != nil {
		return "", fmt.Errorf("create the device of volume %s: %w", spec.VolumeID, err)
	}
	r, err := call(ctx, c, "CreateDevice", func(ctx context.Context, s *services) (*pluginv1.CreateDeviceResponse, error) {
		return s.storage.CreateDevice(ctx, &pluginv1.CreateDeviceRequest{
			VolumeId: spec.VolumeID, AccessModes: modes, VolumeMode: string(spec.Mode),
			PublishContext: spec.PublishContext, VolumeContext: spec.VolumeContext, StorageParameters: spec.Parameters,
		})
	})
	if err == nil && r.GetDeviceName() == "" {
		err = fmt.Errorf("vendor plugin %s made a device without a name: %w", c.name, provisioner.ErrPrecondition)
	}
	if err != nil {
		return "", fmt.Errorf("create the device of volume %s: %w", spec.VolumeID, err)
	}
	return r.GetDeviceName(), nil
}

// Epochs reports whether the plugin opens devices under epochs: a plugin that does not
// serve EpochService does not.
func (c *Client) Epochs(ctx context.Context) (bool, error) {
	_, err := call(ctx, c, "GetEpochInfo", func(ctx context.Context, s *services) (*epochv1.GetEpochInfoResponse, error) {
		return s.epochs.GetEpochInfo(ctx, &epochv1.GetEpochInfoRequest{})
	})
	if errors.Is(err, provisioner.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// OpenAtEpoch opens a device at the storage under an epoch. Idempotent; what the plugin
// refuses has changed nothing. See provisioner.Epochs.
func (c *Client) OpenAtEpoch(ctx context.Context, volumeID, deviceName string, epoch int64) error {
	_, err := call(ctx, c, "OpenAtEpoch", func(ctx context.Context, s *services) (*epochv1.OpenAtEpochResponse, error) {
		return s.epochs.OpenAtEpoch(ctx, &epochv1.OpenAtEpochRequest{VolumeId: volumeID, DeviceName: deviceName, Epoch: epoch})
	})
	if err != nil {
		return fmt.Errorf("open device %s of volume %s at epoch %d: %w", deviceName, volumeID, epoch, err)
	}
	return nil
}

// DeleteDevice removes a device; one that is gone is success, whether the
// plugin says so by OK or by NOT_FOUND.
func (c *Client) DeleteDevice(ctx context.Context, volumeID, deviceName string) error {
	_, err := call(ctx, c, "DeleteDevice", func(ctx context.Context, s *services) (*pluginv1.DeleteDeviceResponse, error) {
		r, err := s.storage.DeleteDevice(ctx, &pluginv1.DeleteDeviceRequest{VolumeId: volumeID, DeviceName: deviceName})
		if gone(err) {
			return r, nil
		}
		return r, err
	})
	if err != nil {
		return fmt.Errorf("delete device %s of volume %s: %w", deviceName, volumeID, err)
	}
	return nil
}

// GetDevice returns the device, or ErrNotFound; ErrUnsupported if the plugin
// cannot tell. What else the plugin answers, the request that the device was made by,
// is for people who ask it themselves.
func (c *Client) GetDevice(ctx context.Context, volumeID, deviceName string) (provisioner.Device, error) {
	r, err := call(ctx, c, "GetDevice", func(ctx context.Context, s *services) (*pluginv1.GetDeviceResponse, error) {
		return s.storage.GetDevice(ctx, &pluginv1.GetDeviceRequest{VolumeId: volumeID, DeviceName: deviceName})
	})
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("get device %s of volume %s: %w", deviceName, volumeID, err)
	}
	return provisioner.Device{VolumeID: volumeID, Name: deviceName, Mode: provisioner.VolumeMode(r.GetVolumeMode())}, nil
}

// ListDevices returns every device, all pages of them, as the plugin orders
// them; Mode is not known. ErrUnsupported if the plugin cannot tell.
func (c *Client) ListDevices(ctx context.Context) ([]provisioner.Device, error) {
	var out []provisioner.Device
	var tokens []string
	for token := ""; ; {
		page, err := call(ctx, c, "ListDevices", func(ctx context.Context, s *services) (*pluginv1.ListDevicesResponse, error) {
			return s.storage.ListDevices(ctx, &pluginv1.ListDevicesRequest{MaxEntries: pageSize, StartingToken: token})
		})
		if err != nil {
			return nil, fmt.Errorf("list devices: %w", err)
		}
		for _, e := range page.GetEntries() {
			out = append(out, provisioner.Device{VolumeID: e.GetVolumeId(), Name: e.GetDeviceName()})
		}
		if token = page.GetNextToken(); token == "" {
			return out, nil
		}
		if slices.Contains(tokens, token) || len(tokens) >= maxPages {
			return nil, fmt.Errorf("list devices: vendor plugin %s never ends its list (page token %q): %w", c.name, token, provisioner.ErrPrecondition)
		}
		tokens = append(tokens, token)
	}
}

// Clients keeps one Client for each plugin under a root directory. Safe for
// concurrent use.
type Clients struct {
	root    string
	timeout time.Duration

	mu     sync.Mutex
	byName map[string]*Client
}

// NewClients returns an empty set; root and timeout are New's.
func NewClients(root string, timeout time.Duration) *Clients {
	return &Clients{root: root, timeout: timeout, byName: map[string]*Client{}}
}

// Client returns the client of the plugin called name, always the same one.
func (s *Clients) Client(name string) (*Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.byName[name]; ok {
		return c, nil
	}
	c, err := New(s.root, name, s.timeout)
	if err != nil {
		return nil, err
	}
	s.byName[name] = c
	return c, nil
}

// Close closes every client.
func (s *Clients) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.byName {
		c.Close()
		delete(s.byName, name)
	}
}
