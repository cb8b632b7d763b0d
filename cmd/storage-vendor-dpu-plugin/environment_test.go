package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/pkg/vendorplugin/pluginflags"
)

// TestFromDPF: DPF's plugins have no flags; what they have instead becomes the flags.
func TestFromDPF(t *testing.T) {
	const snap = "/var/lib/nvidia/storage/snap"
	for name, c := range map[string]struct {
		program     string
		environment map[string]string
		args        []string
		want        map[string]string
		words       string
	}{
		"Moor's own": {program: "storage-vendor-dpu-plugin", args: []string{"--kind=fs"}, want: map[string]string{"kind": "fs", "plugin-name": "", "snap-socket": snap + "/providers/nvidia/snap.sock"}},
		"block": {
			program: "block-storage-vendor-dpu-plugin", environment: map[string]string{"PLUGIN_NAME": "nvidia-block", "PROVIDER_NAME": "nvidia"},
			want: map[string]string{"kind": "block", "plugin-name": "nvidia-block", "provider": "nvidia", "snap-socket": snap + "/providers/nvidia/snap.sock"},
		},
		"another provider": {
			program: "fs-storage-vendor-dpu-plugin", environment: map[string]string{"PROVIDER_NAME": "two"},
			want: map[string]string{"kind": "fs", "provider": "two", "snap-socket": snap + "/providers/two/snap.sock"},
		},
		"all of it": {
			program: "fs-storage-vendor-dpu-plugin",
			environment: map[string]string{
				"PLUGIN_NAME": "nvidia-fs", "PROVIDER_NAME": "nvidia", "PLUGIN_SOCKET_PATH": "/p/nvidia-fs/dpu.sock", "SNAP_SOCKET_PATH": "/s/snap.sock", "VOLUME_DIRECTORY": "/v",
			},
			want: map[string]string{"kind": "fs", "plugin-name": "nvidia-fs", "plugin-root": "/p", "snap-socket": "/s/snap.sock", "volume-directory": "/v"},
		},
		"flags win":      {program: "block-storage-vendor-dpu-plugin", environment: map[string]string{"PLUGIN_NAME": "a"}, args: []string{"--plugin-name=b", "--kind=fs"}, want: map[string]string{"kind": "fs", "plugin-name": "b"}},
		"another's path": {program: "block-storage-vendor-dpu-plugin", environment: map[string]string{"PLUGIN_NAME": "a", "PLUGIN_SOCKET_PATH": "/p/b/dpu.sock"}, words: "PLUGIN_SOCKET_PATH is /p/b/dpu.sock"},
		"another socket": {program: "block-storage-vendor-dpu-plugin", environment: map[string]string{"PLUGIN_SOCKET_PATH": "/p/b.sock"}, words: "PLUGIN_SOCKET_PATH is /p/b.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			var o options
			fs := pflag.NewFlagSet("tried", pflag.ContinueOnError)
			o.bind(fs)
			err := fromDPF(fs, c.program, func(key string) string { return c.environment[key] })
			if c.words != "" {
				if err == nil || !strings.Contains(err.Error(), c.words) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := fs.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			for flag, want := range c.want {
				if got := fs.Lookup(flag).Value.String(); got != want {
					t.Errorf("--%s is %q, want %q", flag, got, want)
				}
			}
		})
	}
}

// TestNFSIsRefused: a plugin that Moor does not have says so by its name.
func TestNFSIsRefused(t *testing.T) {
	o := options{kind: "nfs"}
	if _, _, err := o.host(pluginflags.Site{}); err == nil || !strings.Contains(err.Error(), "block or fs is wanted") {
		t.Errorf("%v", err)
	}
}
