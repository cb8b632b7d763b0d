package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// fromDPF sets flags from what DPF's plugins have in their place: programs named
// <kind>-storage-vendor-dpu-plugin, and environment variables. Flags that are given come
// after, and win. An empty variable counts as none.
func fromDPF(fs *pflag.FlagSet, program string, environment func(string) string) error {
	set := func(flag, value string) error {
		if value == "" {
			return nil
		}
		return fs.Set(flag, value)
	}
	kind, _ := strings.CutSuffix(program, "-storage-vendor-dpu-plugin")
	if kind == program {
		kind = ""
	}
	name, provider, socket := environment("PLUGIN_NAME"), environment("PROVIDER_NAME"), environment("SNAP_SOCKET_PATH")
	if provider != "" && socket == "" {
		socket = filepath.Join("/var/lib/nvidia/storage/snap/providers", provider, "snap.sock")
	}
	root := ""
	if served := environment("PLUGIN_SOCKET_PATH"); served != "" {
		dir := filepath.Dir(served)
		if filepath.Base(served) != "dpu.sock" || name != "" && filepath.Base(dir) != name {
			return fmt.Errorf("PLUGIN_SOCKET_PATH is %s, and snap-node-driver looks for <directory>/<name of the plugin>/dpu.sock: set it so, or leave it out", served)
		}
		name, root = filepath.Base(dir), filepath.Dir(dir)
	}
	for _, f := range []struct{ flag, value string }{
		{"kind", kind}, {"plugin-name", name}, {"plugin-root", root}, {"provider", provider}, {"snap-socket", socket}, {"volume-directory", environment("VOLUME_DIRECTORY")},
	} {
		if err := set(f.flag, f.value); err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
	}
	return nil
}
