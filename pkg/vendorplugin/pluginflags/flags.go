// Package pluginflags has the flags of programs that are a vendor's plugin on a DPU, so
// that each has the same ones, and what follows from them.
package pluginflags

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// DefaultSNAPSocket is where SNAP of the default provider is reached on a DPU of DPF.
const DefaultSNAPSocket = "/var/lib/nvidia/storage/snap/providers/nvidia/snap.sock"

// Flags of a plugin.
type Flags struct {
	// Name of the plugin, by which it is found; Bind's default is what it is before.
	Name string
	// Timeout of a call.
	Timeout time.Duration

	root, provider, snapSocket, stateDir, volumeDir string
}

// Bind adds the flags. Unnamed is put behind what --plugin-name means, to say what an empty
// one is, and suffix behind what each means, to say which mode has it.
func (f *Flags) Bind(fs *pflag.FlagSet, unnamed, suffix string) {
	fs.StringVar(&f.Name, "plugin-name", f.Name, "name of the plugin: it serves on <plugin-root>/<plugin-name>/dpu.sock"+unnamed+suffix)
	fs.StringVar(&f.root, "plugin-root", vendorplugin.DefaultRoot, "directory of the vendor plugins' directories"+suffix)
	fs.StringVar(&f.provider, "provider", vendorplugin.DefaultProvider, "name of the SNAP process that --snap-socket belongs to"+suffix)
	fs.StringVar(&f.snapSocket, "snap-socket", DefaultSNAPSocket, "JSON-RPC socket of SNAP"+suffix)
	fs.StringVar(&f.stateDir, "state-dir", "", "directory for what the plugin remembers of its devices; empty: devices beside its socket"+suffix)
	fs.DurationVar(&f.Timeout, "timeout", time.Minute, "how long one call may take")
}

// BindVolumes adds the flag of a plugin that shows file systems to SNAP.
func (f *Flags) BindVolumes(fs *pflag.FlagSet, suffix string) {
	fs.StringVar(&f.volumeDir, "volume-directory", "", "where volumes are shown to SNAP, which must see it at the same path; empty: volumes/<plugin-name> beside --snap-socket"+suffix)
}

// Site is what the flags of a plugin come to.
type Site struct {
	// Socket is that of the plugin.
	Socket string
	// State is the directory for what it remembers of its devices, and Volumes that where it
	// shows file systems to SNAP.
	State, Volumes string
	// SNAP is the service that it gives its devices to.
	SNAP *snaprpc.Client
	// Options are those of the plugin's server, but for what it can do and by what.
	Options vendorplugin.Options
}

// Site returns what the flags come to, of a plugin that calls itself called. It asks for
// nothing yet. provisioner.ErrInvalid if the plugin's name can be none.
func (f *Flags) Site(called string) (Site, error) {
	socket, err := vendorplugin.SocketPath(f.root, f.Name)
	if err != nil {
		return Site{}, err
	}
	built := version.Built()
	s := Site{
		Socket: socket, SNAP: snaprpc.New(f.snapSocket, f.Timeout),
		State:   cmp.Or(f.stateDir, filepath.Join(filepath.Dir(socket), "devices")),
		Volumes: cmp.Or(f.volumeDir, filepath.Join(filepath.Dir(f.snapSocket), "volumes", f.Name)),
	}
	s.Options = vendorplugin.Options{
		Info:     vendorplugin.Info{Name: called, Version: built.Version, Manifest: built.Manifest()},
		Provider: f.provider, Records: filepath.Join(s.State, "requests"), Timeout: f.Timeout,
		// SNAP may start after the plugin: until then the plugin is starting.
		Ready: func(ctx context.Context) (bool, error) { return s.Reaches(ctx) == nil, nil },
	}
	return s, nil
}

// Reaches asks SNAP for something small: an error if it does not answer.
func (s Site) Reaches(ctx context.Context) error {
	_, err := s.SNAP.BdevGetBdevs(ctx, "")
	return err
}
