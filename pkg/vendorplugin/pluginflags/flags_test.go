package pluginflags

import (
	"errors"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// TestSite: what the flags come to.
func TestSite(t *testing.T) {
	const dpf = "/var/lib/nvidia/storage/snap"
	for _, tc := range []struct {
		name                                      string
		args                                      []string
		socket, state, records, volumes, provider string
		timeout                                   time.Duration
		err                                       error
	}{
		{
			name: "DPF's places", socket: dpf + "/plugins/tape/dpu.sock", state: dpf + "/plugins/tape/devices", records: dpf + "/plugins/tape/devices/requests",
			volumes: dpf + "/providers/nvidia/volumes/tape", provider: vendorplugin.DefaultProvider, timeout: time.Minute,
		},
		{
			name:   "others",
			args:   []string{"--plugin-name=disk", "--plugin-root=/p", "--provider=two", "--snap-socket=/s/snap.sock", "--timeout=5s"},
			socket: "/p/disk/dpu.sock", state: "/p/disk/devices", records: "/p/disk/devices/requests", volumes: "/s/volumes/disk", provider: "two", timeout: 5 * time.Second,
		},
		{
			name:   "directories of their own",
			args:   []string{"--plugin-root=/p", "--state-dir=/state", "--volume-directory=/volumes"},
			socket: "/p/tape/dpu.sock", state: "/state", records: "/state/requests", volumes: "/volumes", provider: vendorplugin.DefaultProvider, timeout: time.Minute,
		},
		{name: "a name that leaves the directory", args: []string{"--plugin-name=../x"}, err: provisioner.ErrInvalid},
		{name: "no name", args: []string{"--plugin-name="}, err: provisioner.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, fs := Flags{Name: "tape"}, pflag.NewFlagSet("", pflag.ContinueOnError)
			f.Bind(fs, "", "")
			f.BindVolumes(fs, "")
			if err := fs.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			s, err := f.Site("tape.example.com")
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if tc.err != nil {
				return
			}
			if s.Socket != tc.socket || s.State != tc.state || s.Options.Records != tc.records || s.Volumes != tc.volumes {
				t.Errorf("places %s, %s, %s, %s", s.Socket, s.State, s.Options.Records, s.Volumes)
			}
			if s.Options.Provider != tc.provider || s.Options.Timeout != tc.timeout || s.Options.Name != "tape.example.com" || s.Options.Version == "" {
				t.Errorf("options %+v", s.Options)
			}
		})
	}
}

// TestReady: a plugin is starting, and not ill, until SNAP answers.
func TestReady(t *testing.T) {
	snap := snapemulatortest.Start(t, snapemulator.Options{})
	f, fs := Flags{Name: "tape"}, pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Bind(fs, "", "")
	if err := fs.Parse([]string{"--snap-socket=" + snap.Options.Socket}); err != nil {
		t.Fatal(err)
	}
	s, err := f.Site("tape.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, up := range []bool{true, false} {
		if !up {
			snap.Stop()
		}
		if ready, err := s.Options.Ready(t.Context()); ready != up || err != nil {
			t.Errorf("SNAP is up: %t, and the plugin is ready: %t, %v", up, ready, err)
		}
		if err := s.Reaches(t.Context()); (err == nil) != up {
			t.Errorf("SNAP is up: %t, and is reached: %v", up, err)
		}
	}
}
