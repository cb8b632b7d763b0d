package vendorplugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

// What a plugin tells of itself and may not: a server of ours refuses to begin with it, and
// a client of ours remarks it of a plugin that it uses as DPF does.
func TestInfo(t *testing.T) {
	for name, tc := range map[string]struct {
		info Info
		want []string
	}{
		"all well":            {Info{Name: "storage.dpu.nvidia-block.com", Version: "1.0", Manifest: map[string]string{"commit": "abc"}}, nil},
		"one label":           {Info{Name: "nvidia", Version: "1"}, nil},
		"capital letters":     {Info{Name: "Storage.Example.COM", Version: "1"}, nil},
		"63 characters":       {Info{Name: strings.Repeat("n", 63), Version: strings.Repeat("1", 128)}, nil},
		"nothing":             {Info{}, []string{"it gives itself no name", "it tells no version"}},
		"64 characters":       {Info{Name: strings.Repeat("n", 64), Version: "1"}, []string{"has 64 characters, and may have 63"}},
		"no domain name":      {Info{Name: "my plugin", Version: "1"}, []string{`its name "my plugin" is no domain name`}},
		"a path":              {Info{Name: "a/b", Version: "1"}, []string{`its name "a/b" is no domain name`}},
		"a long version":      {Info{Name: "a.b", Version: strings.Repeat("1", 129)}, []string{"its version has 129 bytes"}},
		"4 KiB of a manifest": {Info{Name: "a.b", Version: "1", Manifest: map[string]string{"k": strings.Repeat("v", 4095)}}, nil},
		"a book":              {Info{Name: "a.b", Version: "1", Manifest: map[string]string{"k": strings.Repeat("v", 4096)}}, []string{"its manifest has 4097 bytes, and may have 4096"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, o := root(t), fakeOptions(provisionertest.NewFake().Platform().Host)
			o.Info = tc.info
			start(t, dir, o) // around the check, as a plugin of others
			v, err := Vet(t.Context(), client(t, dir, time.Minute))
			same := slices.EqualFunc(v.Remarks, tc.want, strings.Contains)
			if err != nil || v.Info.Name != tc.info.Name || !same {
				t.Errorf("vetted %+v, %v; want the remarks %q", v.Remarks, err, tc.want)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			socket, _ := SocketPath(root(t), "p")
			err = NewServer(o).Serve(ended, socket)
			if errors.Is(err, provisioner.ErrInvalid) != (len(tc.want) > 0) {
				t.Fatalf("serve: %v", err)
			}
			for _, words := range tc.want {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("serve: %v, want %q", err, words)
				}
			}
		})
	}
}
